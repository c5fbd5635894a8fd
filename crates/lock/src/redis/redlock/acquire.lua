-- acquire: take this node if it is free.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms
-- gives  {1, 0}                                       granted, or this claim had it already
--        {2, what is left of the lease in ms, -1, 0}  busy: there is no fence
--
-- One script, because a node that was granted to this claim before must grant it again. A caller that is
-- told that the node is busy is subscribed to its change by that answer.
local held = peek(KEYS[1])
if held and not is_of(held, ARGV[1]) then
  watch(KEYS[1])
  return {2, redis.call('PTTL', KEYS[1]), -1, 0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, 0}
