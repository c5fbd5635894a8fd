-- take_many: take locks that are free, for several claims at once.
--
-- KEYS   for each claim: lock, counter of fences for the slot of the lock
-- ARGV   for each claim: token, 16 bytes; lease in ms
-- gives  for each claim: its fence, or false if it has to ask alone: see take.lua
--
-- One script, because starting a script takes the server longer than taking a lock. The claims do not
-- depend on each other. An error of one is not raised, because the others may have been granted their
-- locks. No command here only reads, so the server tracks none of the names.
local keys, args, pcall, pack = KEYS, ARGV, redis.pcall, struct.pack
local fences = {}
for i = 1, #keys, 2 do
  local fence = pcall('INCR', keys[i + 1])
  local is_granted = false
  if type(fence) == 'number' and fence >= 1e12 and fence < 9007199254740992 then
    local set = pcall('SET', keys[i], pack('>c16I8I8', args[i], fence, 0), 'NX', 'PX', args[i + 1])
    is_granted = set and set.ok
  end
  fences[#fences + 1] = is_granted and fence or false
end
return fences
