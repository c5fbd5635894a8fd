-- look: the entry and what is left of its life.
--
-- KEYS   1 entry
-- gives  {entry, its remaining life in ms}, or false if there is none
--
-- One script, because an entry that is replaced between two commands would be judged by the life
-- of its successor.
local entry = redis.call('MGET', KEYS[1])[1]
if not entry then return false end
return {entry, redis.call('PTTL', KEYS[1])}
