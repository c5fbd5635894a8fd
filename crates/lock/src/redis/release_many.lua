-- release_many: give up locks, for several claims at once.
--
-- KEYS   for each claim: lock
-- ARGV   for each claim: token, 16 bytes
-- gives  for each claim: 1 freed; 0 it did not hold the lock; false if it has to ask alone: see
--        release.lua
--
-- One script, because starting a script takes the server longer than releasing a lock. The claims do
-- not depend on each other, and an error of one is not raised.
local keys, args, pcall, sub = KEYS, ARGV, redis.pcall, string.sub
local released, marked = {}, nil
for i = 1, #keys do
  local held = pcall('GETEX', keys[i])
  if type(held) == 'string' and sub(held, 1, 16) == args[i] then
    released[i] = pcall('DEL', keys[i]) == 1 and 1
    if #held > 32 then
      marked = marked or {}
      marked[keys[i]] = held
    end
  else
    released[i] = type(held) ~= 'table' and 0
  end
end
if not marked then return released end
