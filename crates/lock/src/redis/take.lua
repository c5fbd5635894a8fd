-- take: take the lock if it is free, as it mostly is.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms   3 name of the mark, the largest fence given
--        4 how long the mark is kept, in ms   5 the holder it may be taken from, its fence and
--            when it was renewed, as bytes; or ''   6 '1' if the life of the mark begins again
-- gives  fence                                                        granted: the lock was free
--        {1, fence}                                                   granted otherwise
--        {2, what is left of the lease in ms, fence of the holder,
--            when it was renewed in ms, or 0}                         busy
--
-- One script, because fences have to grow in the order of the grants. A caller that is told that the
-- lock is busy is subscribed to its change by that answer. A bare number takes the server less time
-- than an array.
local next = redis.pcall('INCR', ARGV[3])
if type(next) == 'number' and next >= 1e12 and next < 9007199254740992 then
  if ARGV[6] == '1' then redis.call('PEXPIRE', ARGV[3], ARGV[4]) end
  local value = ARGV[1] .. struct.pack('>I8I8', next, 0)
  if redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then return next end
end
