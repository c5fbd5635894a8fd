-- take_many: take locks that are free, for several claims at once.
--
-- KEYS   for each claim: lock; then the counter of fences
-- ARGV   for each claim: token, 16 bytes; lease in ms
-- gives  for each claim: the fence of all, or false if it has to ask alone: see take.lua
--
-- One script, because starting a script takes the server longer than taking a lock. The claims do not
-- depend on each other. An error of one is not raised, because the others may have been granted their
-- locks. No command here only reads, so the server tracks none of the names.
local keys, args, pcall, time = KEYS, ARGV, redis.pcall, redis.call('TIME')
local counter, now, fences = keys[#keys], time[1] * 1000000 + time[2], {}
local fence = struct.pack('>I8', now)
local last = pcall('SET', counter, fence, 'KEEPTTL', 'GET')
local before = last and #last == 8 and struct.unpack('>I8', last)
local is_counted = before and before < now and before >= now - now % 3600000000
if not is_counted then
  -- As in the preludes of take.lua, which this does without.
  if before and before >= now and before < 9007199254740992 then now = before + 1 end
  fence = struct.pack('>I8', now)
  is_counted = pcall('SET', counter, fence, 'PX', '90000000').ok
end
for i = 1, #keys - 1 do
  local set = is_counted
    and pcall('SET', keys[i], args[2 * i - 1] .. fence .. '\0\0\0\0\0\0\0\0', 'NX', 'PX', args[2 * i])
  fences[i] = set and set.ok and now or false
end
return fences
