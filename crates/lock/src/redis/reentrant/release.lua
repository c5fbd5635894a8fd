-- release: give up a hold, and the lock with the last one.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes
-- gives  1 given up, 0 this claim had no hold
--
-- One script, because a hold that is added between counting and freeing would be freed, too.
local now = math.floor(server_time() / 1000)
local found = holds(KEYS[1], now)
if not found.ends[ARGV[1]] then return 0 end
found.ends[ARGV[1]] = nil
if found.count == 1 then
  redis.call('DEL', KEYS[1])
  tell(KEYS[1], found.marks)
else
  redis.call('HDEL', KEYS[1], ARGV[1])
  expire(KEYS[1], found.ends, now)
end
return 1
