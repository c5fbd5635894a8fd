-- renew: start the lease anew on this node.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms
-- gives  1 held, 0 nobody has it, 2 somebody else has it
--
-- One script, because a node that passes on between the two steps would have somebody else's lease
-- prolonged.
local held = peek(KEYS[1])
if not held then return 0 end
if not is_of(held, ARGV[1]) then return 2 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
