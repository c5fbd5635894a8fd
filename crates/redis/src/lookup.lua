-- lookup: read entries, and what is left of their lives. It is for entries that were made stale
-- before the end of their ttl. For others, MGET and TIME do, which cost the server less.
--
-- KEYS   1 entry, and any number of others
-- gives  the server's time in us; then for each, the entry or false, and its remaining life in us
--
-- One script, because between two commands an entry could be replaced, and would get the life of
-- the new one.
local now = server_time()
local gives = { now }
for number, name in ipairs(KEYS) do
  local entry, left = read('GET', name), 0
  if readable(entry) then
    left = life_left(name, entry, now)
    entry = left > 0 and entry
  elseif entry == '' then
    entry = false
  end
  gives[2 * number], gives[2 * number + 1] = entry, left
end
return gives
