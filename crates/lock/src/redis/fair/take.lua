-- take: take the lock if it is free and has no waiters, which is the common case.
--
-- KEYS   1 the name to watch: the waiter's own name, or the lock if it does not wait
--        2 lock   3 queue   4 its times   5 counter of fences for the slot of the lock
-- ARGV   1 token, 16 bytes   2 lease in ms   3 how long the counter is kept from now on, in ms, or ''
--            for as long as it is
--        4 after how long a silent waiter counts as dead, in ms, or 0 not to wait
--        5 the mark to leave at the name to watch, or ''
--        6 lock, 7 queue, 8 its times and 9 counter, if they are not among the KEYS
-- gives  fence                                                        granted: the lock was free
--        {1, fence}                                                   granted otherwise
--        {2, the rest of the lease in ms, or -1 if others are next,
--            fence of the holder, when it was renewed in ms, or 0,
--            how many are ahead}                                      busy
--
-- One script, because only the first waiter may take a lock that is free. A caller that waits is told
-- when it is its turn. One that does not wait is told when the lock changes.
local lock, queue = KEYS[2] or ARGV[6], KEYS[3] or ARGV[7]
local counter = KEYS[5] or ARGV[9]
local next = not redis.pcall('GETEX', queue) and redis.pcall('INCR', counter)
if type(next) == 'number' and next >= 1e12 and next < 9007199254740992 then
  if ARGV[3] ~= '' then redis.call('PEXPIRE', counter, ARGV[3]) end
  local value = struct.pack('>c16I8I8', ARGV[1], next, 0)
  if redis.call('SET', lock, value, 'NX', 'PX', ARGV[2]) then return next end
end
