-- change_tag: invalidate or expire a tag.
--
-- KEYS   1 tag
-- ARGV   1 'hard' to invalidate it, 'soft' to expire it   2 a random byte
--        3 over which time its entries become stale, in ms
-- gives  1
--
-- One script, because the new epoch has to be above the old one. It writes nothing but that: no
-- list of entries exists, so the cost does not depend on how many there are.
local value, now = peek(KEYS[1]), server_time()
local known = is_tag(value)
local last = known and math.max(epoch_time(value, 1), epoch_time(value, 9)) or 0
local epoch = new_epoch(now, ARGV[2], 1, last)
local changed = epoch .. epoch
if known and ARGV[1] == 'soft' then
  changed = string.sub(value, 1, 8) .. epoch
  if ARGV[3] ~= '0' then changed = changed .. string.sub(value, 9, 16) .. struct.pack('>I8', ARGV[3]) end
end
local life = math.max(tag_life, redis.call('PTTL', KEYS[1]))
-- The first write of a script that needs memory is refused by a full server, and later ones are not.
redis.call('PEXPIRE', KEYS[1], life)
redis.call('SET', KEYS[1], changed, 'PX', life)
return 1
