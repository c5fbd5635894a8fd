-- acquire: take the lock if nobody has it and nobody was there before, or wait in the queue.
--
-- KEYS   1 what is to be heard of: what calls the waiter, or the lock if it does not wait
-- ARGV   1 token, 16 bytes   2 lease in ms   3 name of the mark, the largest fence given
--        4 how long the mark is kept, in ms   5 name of the queue
--        6 after how long without a word a waiter is dead, in ms, or 0 not to wait
--        7 name of the lock
-- gives  {1, fence}                                                   granted
--        {2, what is left of the lease in ms, or -1 if others are next,
--            fence of the holder, when it was renewed in ms,
--            how many are ahead}                                      busy
--
-- One script, because of those who find the lock free only the first may take it. Who waits is told
-- when it is its turn; who does not is told when the lock changes.
local lock, clock_us = ARGV[7], clock()
local dropped = drop_silent(ARGV[5], math.floor(clock_us / 1000))
local held = peek(lock)
local is_ours = is_of(held, ARGV[1])
local turn = first(ARGV[5])
if is_ours or not held and (not turn or turn == ARGV[1]) then
  local fence = is_ours and holder(held) or next_fence(ARGV[3], ARGV[4], clock_us)
  write(lock, ARGV[1], fence, clock_us, ARGV[2])
  leave(ARGV[5], ARGV[1])
  return {1, fence}
end
if dropped > 0 and not held then call_first(lock, ARGV[5]) end
local silence, ahead = tonumber(ARGV[6]), 0
if silence > 0 then
  wait(ARGV[5], ARGV[1], clock_us, silence)
  ahead = redis.call('ZRANK', ARGV[5], ARGV[1])
else
  leave(ARGV[5], ARGV[1])
  ahead = redis.call('ZCARD', ARGV[5])
end
watch(KEYS[1])
if not held then return {2, -1, -1, 0, ahead} end
local fence, renewed = holder(held)
-- Only who is next has a use for it, and who asks is told of changes by some servers.
local left = (ahead == 0 or silence == 0) and redis.call('PTTL', lock) or -1
return {2, left, fence, renewed, ahead + 1}
