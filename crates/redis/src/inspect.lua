-- inspect: read all that is stored of a key, for an operator. It changes nothing.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- gives  the server's time in us
--        entry or false
--        the watermark, or 0
--        failure or false, for how long it is remembered in ms
--        token or false; then, if there is a lease, its fence, what is left of it in ms, how many
--            processes wait for its end, and the trace of its load or false
--
-- One script, because between two steps the entry could be replaced, and the answer would be of no
-- one moment.
local now = server_time()
local failed = split_failure(peek(KEYS[4]))
local watermark = number(peek(KEYS[3]))
local gives = {now, peek(KEYS[1]), watermark, failed, redis.call('PTTL', KEYS[4])}
local lease = peek(KEYS[2])
local fence, first = lease_fence(lease)
if not fence then
  gives[6] = false
  return gives
end
gives[6], gives[7] = string.sub(lease, 1, 16), fence
gives[8], gives[9] = redis.call('PTTL', KEYS[2]), (#lease - first + 1) / mark_length
gives[10] = first > lease_length + 1 and string.sub(lease, lease_length + 1, first - 1)
return gives
