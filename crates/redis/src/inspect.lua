-- inspect: read all that is stored of a key, for an operator. It changes nothing.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- gives  the server's time in us
--        entry or false, its remaining life in us
--        the watermark, or 0
--        failure or false, for how long it is remembered in ms
--        token or false; then, if there is a lease, its fence, what is left of it in ms, how many
--            processes wait for its end, and the trace of its load or false
--
-- One script, because between two steps the entry could be replaced, and the answer would be of no
-- one moment.
local now = server_time()
local entry, left = peek(KEYS[1]), 0
if readable(entry) then left = life_left(KEYS[1], entry, now) end
local failed = split_failure(peek(KEYS[4]))
local gives = { now, entry, left, number(peek(KEYS[3])), failed, redis.call('PTTL', KEYS[4]) }
local lease = peek(KEYS[2])
local fence, first = lease_fence(lease)
if not fence then
  gives[7] = false
  return gives
end
gives[7], gives[8] = string.sub(lease, 1, 16), fence
gives[9], gives[10] = redis.call('PTTL', KEYS[2]), (#lease - first + 1) / mark_length
gives[11] = first > lease_length + 1 and string.sub(lease, lease_length + 1, first - 1)
return gives
