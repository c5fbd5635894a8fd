-- release: give up a hold, and the lock with the last one.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 which release this is   3 how long that is remembered, in ms
-- gives  1 given up, 0 it was not ours any more, or never
--
-- One script, because a hold that is added between counting and freeing would be freed with the
-- others.
local now = math.floor(clock() / 1000)
local found = holds(KEYS[1], now)
if not found.ends[ARGV[1]] then return was_freed(KEYS[1], ARGV[2]) end
found.ends[ARGV[1]] = nil
if found.count == 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], ARGV[1])
  expire(KEYS[1], found.ends, now)
end
note_freed(KEYS[1], ARGV[2], ARGV[3])
return 1
