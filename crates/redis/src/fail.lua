-- fail: give up a lease, and remember why its load failed.
--
-- KEYS   1 lease   2 failed
-- ARGV   1 token, 16 bytes   2 failure   3 how long it is remembered, in ms   4 fence
-- gives  1 remembered, 0 the lease was lost before, or the error of a server that refuses the write
--
-- One script, because between two steps, another claim could take the lease, and an outdated
-- failure would be stored.
local lease = peek(KEYS[1])
if not lease or string.sub(lease, 1, 16) ~= ARGV[1] then return 0 end
-- If a late copy of the acquire has taken a lease under this token, its fence is another one.
local holds = lease_fence(lease) == tonumber(ARGV[4])
-- Protected, so that the lease ends even if the server is out of memory.
local set = holds and redis.pcall('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) or {}
redis.call('DEL', KEYS[1])
tell_waiters(KEYS[1], lease)
if set.err then return set end
return holds and 1 or 0
