-- take: take the lock if it is free, which is the common case.
--
-- KEYS   1 lock   2 counter of fences for the slot of the lock
-- ARGV   1 token, 16 bytes   2 lease in ms
--        and all of these, or none, because each takes the server time:
--        3 how long the counter is kept from now on, in ms, or '' for as long as it is
--        4 the holder to take the lock over from, by its fence and when it was renewed, as bytes, or ''
--        5 the mark to leave at a lock that the caller waits for, or ''
--        and as the last one the counter, if it is not among the KEYS
-- gives  fence                                                        granted: the lock was free
--        {1, fence}                                                   granted otherwise
--        {2, the rest of the lease in ms, fence of the holder,
--            when it was renewed in ms, or 0}                         busy
--
-- One script, because fences have to grow in the order of the grants. A caller that gets `busy` is
-- subscribed to the lock's next change by this script's GET. A caller to which the server reports none
-- leaves a mark instead. A bare number takes the server less time than an array.
local counter = KEYS[2] or ARGV[#ARGV]
local next = redis.pcall('INCR', counter)
if type(next) == 'number' and next >= 1e12 and next < 9007199254740992 then
  if ARGV[5] and ARGV[3] ~= '' then redis.call('PEXPIRE', counter, ARGV[3]) end
  local value = struct.pack('>c16I8I8', ARGV[1], next, 0)
  if redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then return next end
end
local from, mark = ARGV[5] and ARGV[4] or '', ARGV[5] or ''
