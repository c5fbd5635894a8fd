-- take: take the lock if it is free, which is the common case.
--
-- KEYS   1 lock   2 counter of fences
-- ARGV   1 token, 16 bytes   2 lease in ms
--        and both of these, or none, because each takes the server time:
--        3 the holder to take the lock over from, by its fence and when it was renewed, as bytes, or ''
--        4 the mark to leave at a lock that the caller waits for, or ''
--        and as the last one the counter, if it is not among the KEYS
-- gives  fence                                                        granted: the lock was free
--        {1, fence}                                                   granted otherwise
--        {2, the rest of the lease in ms, fence of the holder,
--            when it was renewed in ms, or 0}                         busy
--
-- One script, because fences have to grow in the order of the grants. A caller that gets `busy` is
-- subscribed to the lock's next change by this script's GET. A caller to which the server reports none
-- leaves a mark instead. A bare number takes the server less time than an array.
local counter, time = KEYS[2] or ARGV[#ARGV], redis.call('TIME')
local now, last = time[1] * 1000000 + time[2], nil
local fence = struct.pack('>I8', now)
local granted = redis.pcall('SET', KEYS[1], ARGV[1] .. fence .. '\0\0\0\0\0\0\0\0', 'NX', 'PX', ARGV[2])
if granted and granted.ok then
  last = redis.pcall('SET', counter, fence, 'KEEPTTL', 'GET')
  local before = last and #last == 8 and struct.unpack('>I8', last)
  -- The life of the counter is set once an hour, by the second part.
  if before and before < now and before >= now - now % 3600000000 then return now end
  redis.call('DEL', KEYS[1])
end
local from, mark = ARGV[4] and ARGV[3] or '', ARGV[4] or ''
