-- look: entries, and what is left of their lives.
--
-- KEYS   1 entry, and any number of others
-- gives  for each, the entry or false, and its remaining life in ms
--
-- One script, because an entry that is replaced between two commands would be judged by the life
-- of its successor.
local gives = {}
for number, name in ipairs(KEYS) do
  gives[2 * number - 1] = read('GET', name)
  gives[2 * number] = redis.call('PTTL', name)
end
return gives
