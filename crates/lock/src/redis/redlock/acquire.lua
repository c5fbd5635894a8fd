-- acquire: take this node if nobody has it.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms
-- gives  {1}                                        granted, or it was ours already
--        {2, what is left of the lease in ms}       busy
--
-- One script, because a node that has it for us already must grant it again. Who is told that it is
-- busy has subscribed by being told so.
local held = peek(KEYS[1])
if held and not is_of(held, ARGV[1]) then
  watch(KEYS[1])
  return {2, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1}
