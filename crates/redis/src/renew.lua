-- renew: make a lease hold for a term from now on.
--
-- KEYS   1 lease
-- ARGV   1 token, 16 bytes   2 term in ms   3 fence
-- gives  1 held, 0 lost: it has lapsed, or another token or fence holds it
--
-- One script, because between two steps, another flight could take the lease, and its lease would be
-- renewed.
local lease = peek(KEYS[1])
if not lease or string.sub(lease, 1, 16) ~= ARGV[1] then return 0 end
-- A late copy of the acquire has taken it after the end of ours. No caller waits for its holder.
if lease_fence(lease) ~= tonumber(ARGV[3]) then return 0 end
local renewed = string.sub(lease, 1, 24) .. struct.pack('>I8', ARGV[2]) .. string.sub(lease, 33)
-- A full server refuses to write the new term. The lease is still renewed.
if renewed ~= lease and not redis.pcall('SET', KEYS[1], renewed, 'PX', ARGV[2]).err then return 1 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
