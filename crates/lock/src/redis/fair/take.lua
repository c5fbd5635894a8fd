-- take: take the lock if it is free and no caller waits for it, as it mostly is.
--
-- KEYS   1 what is to be heard of: what calls the waiter, or the lock if it does not wait
-- ARGV   1 token, 16 bytes   2 lease in ms   3 name of the mark, the largest fence given
--        4 how long the mark is kept, in ms   5 name of the queue
--        6 after how long without a word a waiter is dead, in ms, or 0 not to wait
--        7 name of the lock   8 '1' if the life of the mark begins again
-- gives  fence                                                        granted: the lock was free
--        {1, fence}                                                   granted otherwise
--        {2, what is left of the lease in ms, or -1 if others are next,
--            fence of the holder, when it was renewed in ms, or 0,
--            how many are ahead}                                      busy
--
-- One script, because of those that find the lock free only the first may take it. A caller that
-- waits is told when it is its turn; one that does not wait is told when the lock changes.
local next = not redis.pcall('GETEX', ARGV[5]) and redis.pcall('INCR', ARGV[3])
if type(next) == 'number' and next >= 1e12 and next < 9007199254740992 then
  if ARGV[8] == '1' then redis.call('PEXPIRE', ARGV[3], ARGV[4]) end
  local value = ARGV[1] .. struct.pack('>I8I8', next, 0)
  if redis.call('SET', ARGV[7], value, 'NX', 'PX', ARGV[2]) then return next end
end
