-- take: take the lock if it is free and no caller waits for it, as it mostly is.
--
-- KEYS   1 the name to be told of: that of the waiter's call, or the lock if it does not wait
--        2 lock   3 queue   4 its times   5 mark, the largest fence given in the slot of the lock
-- ARGV   1 token, 16 bytes   2 lease in ms   3 how long the mark is kept, in ms
--        4 '1' if the life of the mark begins again
--        5 after how long without a word a waiter is dead, in ms, or 0 not to wait
--        6 lock, 7 queue, 8 its times and 9 mark, if they are not among the KEYS
-- gives  fence                                                        granted: the lock was free
--        {1, fence}                                                   granted otherwise
--        {2, what is left of the lease in ms, or -1 if others are next,
--            fence of the holder, when it was renewed in ms, or 0,
--            how many are ahead}                                      busy
--
-- One script, because of those that find the lock free only the first may take it. A caller that
-- waits is told when it is its turn; one that does not wait is told when the lock changes.
local lock, queue = KEYS[2] or ARGV[6], KEYS[3] or ARGV[7]
local mark = KEYS[5] or ARGV[9]
local next = not redis.pcall('GETEX', queue) and redis.pcall('INCR', mark)
if type(next) == 'number' and next >= 1e12 and next < 9007199254740992 then
  if ARGV[4] == '1' then redis.call('PEXPIRE', mark, ARGV[3]) end
  local value = ARGV[1] .. struct.pack('>I8I8', next, 0)
  if redis.call('SET', lock, value, 'NX', 'PX', ARGV[2]) then return next end
end
