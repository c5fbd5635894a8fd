-- fail: give up a lease, and remember why its load failed.
--
-- KEYS   1 lease   2 failed
-- ARGV   1 token, 16 bytes   2 failure   3 how long it is remembered, in ms
-- gives  1 given up, 0 the lease was lost before, or the error of a server that refuses the write
--
-- One script, because between two steps, another claim could take the lease, and an outdated
-- failure would be stored.
local lease = peek(KEYS[1])
if not lease or string.sub(lease, 1, 16) ~= ARGV[1] then return 0 end
-- Protected, so that the lease ends even if the server is out of memory.
local set = redis.pcall('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[1])
tell_waiters(KEYS[1], lease)
if set.err then return set end
return 1
