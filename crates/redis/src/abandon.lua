-- abandon: give up a lease.
--
-- KEYS   1 lease
-- ARGV   1 token, 16 bytes
-- gives  1 if it was given up, 0 if another token holds it, or none
--
-- One script, because between a read and a delete in two steps, another flight could take the lease.
local lease = peek(KEYS[1])
if not lease or string.sub(lease, 1, 16) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
tell_waiters(KEYS[1], lease)
return 1
