-- take: take the lock if it is free and has no waiters, which is the common case.
--
-- KEYS   1 the name to watch: the waiter's own name, or the lock if it does not wait
--        2 lock   3 queue   4 its times   5 counter of fences
-- ARGV   1 token, 16 bytes   2 lease in ms
--        3 after how long a silent waiter counts as dead, in ms, or 0 not to wait
--        4 the mark to leave at the name to watch, or ''
--        5 lock, 6 queue, 7 its times and 8 counter, if they are not among the KEYS
-- gives  fence                                                        granted: the lock was free
--        {1, fence}                                                   granted otherwise
--        {2, the rest of the lease in ms, or -1 if others are next,
--            fence of the holder, when it was renewed in ms, or 0,
--            how many are ahead}                                      busy
--
-- One script, because only the first waiter may take a lock that is free. A caller that waits is told
-- when it is its turn. One that does not wait is told when the lock changes.
local lock, queue, counter = KEYS[2] or ARGV[5], KEYS[3] or ARGV[6], KEYS[5] or ARGV[8]
local is_free = not redis.pcall('GETEX', queue)
