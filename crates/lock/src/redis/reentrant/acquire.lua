-- acquire: take the lock if it is free, or if its owner has it.
--
-- KEYS   1 lock   2 counter of fences
-- ARGV   1 token, 16 bytes   2 lease in ms   3 owner, 16 bytes
--        4 the mark to leave at a lock that the caller waits for, or ''
--        5 counter, if it is not among the KEYS
-- gives  {1, fence}                                                   granted
--        {2, the rest of the last lease in ms, fence of the holder,
--            when it was renewed in ms}                               busy
--
-- One script, because another owner could take the lock between the read and the write, and because the
-- release of another hold would free a hold that is not counted yet. Reading the holds subscribes to
-- their change.
local clock_us = server_time()
local now = math.floor(clock_us / 1000)
local found = holds(KEYS[1], now)
local is_ours = found.count == 0 or found.owner == ARGV[3] or found.ends[ARGV[1]]
if found.is_foreign or not is_ours then
  if not found.is_foreign and adds_mark(found.marks, 1, ARGV[4]) then
    redis.pcall('HSET', KEYS[1], 'marks', found.marks .. ARGV[4])
  end
  return {2, redis.call('PTTL', KEYS[1]), tonumber(found.fence or -1), tonumber(found.renewed or 0)}
end
if found.count == 0 then
  redis.call('DEL', KEYS[1])
  found.fence = digits(next_fence(KEYS[2] or ARGV[5], clock_us))
  redis.call('HSET', KEYS[1], 'owner', ARGV[3], 'fence', found.fence)
  if found.marks ~= '' then redis.call('HSET', KEYS[1], 'marks', found.marks) end
end
for _, token in ipairs(found.lapsed) do redis.call('HDEL', KEYS[1], token) end
keep(KEYS[1], found, ARGV[1], now, tonumber(ARGV[2]))
return {1, tonumber(found.fence)}
