-- abandon: give up a lease.
--
-- KEYS   1 lease
-- ARGV   1 token, 16 bytes
-- gives  1 given up, 0 it was not ours any more, or never
--
-- One script, because a lease that passes on between the two steps would be somebody else's.
local lease = peek(KEYS[1])
if not lease or string.sub(lease, 1, 16) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
