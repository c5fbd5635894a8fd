-- touch_tags: read the epochs of tags, and make those that are absent.
--
-- KEYS   1 tag, and any number of others
-- ARGV   1 how long the tags are needed, in ms   2 a random byte for each tag
-- gives  the server's time in us; then the value of each tag
--
-- One script, because between a read and a write in two steps, two loads could make two epochs of
-- one tag. The tags do not depend on each other, so some of them can be touched on another server.
local now = server_time()
local gives = {now}
for number, name in ipairs(KEYS) do
  local value = peek(name)
  if not is_tag(value) then
    local epoch = new_epoch(now, string.sub(ARGV[2], number, number), 0, 0)
    value = epoch .. epoch
    redis.call('SET', name, value, 'PX', ARGV[1] + tag_life)
  elseif redis.call('PTTL', name) < tonumber(ARGV[1]) then
    -- Much longer than is needed now: this is reported to every process that has copies.
    redis.call('PEXPIRE', name, ARGV[1] + tag_life)
  end
  gives[number + 1] = value
end
return gives
