-- acquire: take the lock if nobody has it, or from exactly one holder.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms   3 name of the mark, the largest fence given
--        4 how long the mark is kept, in ms   5 the holder it may be taken from, its fence and
--            when it was renewed, as bytes; or ''
-- gives  {1, fence}                                                   granted
--        {2, what is left of the lease in ms, fence of the holder,
--            when it was renewed in ms}                               busy
--
-- One script, because between a look and a lock another process can come, and because fences have
-- to grow in the order of the grants. Who is told that it is busy has subscribed by being told so.
local held = peek(KEYS[1])
local is_ours = is_of(held, ARGV[1])
local is_from = held and #held == 32 and string.sub(held, 17) == ARGV[5]
if held and not is_ours and not is_from then
  watch(KEYS[1])
  local fence, renewed = holder(held)
  return {2, redis.call('PTTL', KEYS[1]), fence, renewed}
end
local now = clock()
local fence = is_ours and holder(held) or next_fence(ARGV[3], ARGV[4], now)
write(KEYS[1], ARGV[1], fence, now, ARGV[2])
return {1, fence}
