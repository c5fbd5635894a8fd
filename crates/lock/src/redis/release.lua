-- release: give up a lock. No prelude stands before it: most locks are released once, and soon.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes
-- gives  1 freed, 0 this claim did not hold it
--
-- One script, because another claim could take the lock between a compare and a delete.
-- GETEX counts as a write, so the server does not track the name for it.
local held = redis.pcall('GETEX', KEYS[1])
if type(held) ~= 'string' or string.sub(held, 1, 16) ~= ARGV[1] then
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
  return 0
end
redis.call('DEL', KEYS[1])
if #held <= 32 then return 1 end
local released, marked = 1, {[KEYS[1]] = held}
