-- renew: start the lease on this node again.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms
-- gives  1 held, 0 lost: the node is free, or another claim has it
--
-- One script, because another claim could take the node between the two steps, and its lease would be
-- prolonged.
if not is_of(peek(KEYS[1]), ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
