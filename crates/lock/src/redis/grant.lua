-- grant: take a lock that is free, which is the common case. Parts before it say which: `lock`, `counter`, and
-- whether it `is_free` as far as its queue says.
--
-- gives  fence                        granted: the lock was free
--
-- What comes after it is for a lock that is held or has waiters, or whose fence is not simply the time.
local time = redis.call('TIME')
local now, last = time[1] * 1000000 + time[2], nil
local fence = struct.pack('>I8', now)
local granted = is_free
  and redis.pcall('SET', lock, ARGV[1] .. fence .. '\0\0\0\0\0\0\0\0', 'NX', 'PX', ARGV[2])
if granted and granted.ok then
  last = redis.pcall('SET', counter, fence, 'KEEPTTL', 'GET')
  local before = last and #last == 8 and struct.unpack('>I8', last)
  -- The life of the counter is set once an hour, by the second part.
  if before and before < now and before >= now - now % 3600000000 then return now end
  redis.call('DEL', lock)
end
