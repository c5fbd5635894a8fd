-- renew: start the lease on this node again.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms
-- gives  1 held, 0 free, 2 another claim has it
--
-- One script, because another claim could take the node between the two steps, and its lease would be
-- prolonged.
local held = peek(KEYS[1])
if not held then return 0 end
if not is_of(held, ARGV[1]) then return 2 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
