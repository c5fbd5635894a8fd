-- renew: have a lease hold for a whole term from now on.
--
-- KEYS   1 lease
-- ARGV   1 token, 16 bytes   2 term in ms
-- gives  1 held, 0 lost: it has lapsed or passed on
--
-- One script, because a lease that passes on between the two steps would be that of another flight,
-- and would be prolonged.
local lease = peek(KEYS[1])
if not lease or string.sub(lease, 1, 16) ~= ARGV[1] then return 0 end
local renewed = string.sub(lease, 1, 24) .. struct.pack('>I8', ARGV[2])
-- A server without room refuses to write the new term. The lease is prolonged all the same.
if renewed ~= lease and not redis.pcall('SET', KEYS[1], renewed, 'PX', ARGV[2]).err then return 1 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
