-- acquire: look, and take the lease if nothing acceptable is there and nobody has it.
--
-- KEYS   1 entry   2 lease
-- ARGV   1 token, 16 bytes   2 term in ms
--        3 '1' if a fresh entry is acceptable, '0' if none is and past failures do not matter, or
--            the fence of the one that is not, as bytes
-- gives  {1, entry, its remaining life in ms}                           found
--        {2, what is left of the lease in ms, stale entry or false,
--            its remaining life}                                        busy
--        {3, fence, the server's time in us, stale entry or false,
--            its remaining life, failures in a row,
--            the failure that others share meanwhile or false}          lead
--            where '' stands for an entry that is no string
--        {4, failure, how long it holds up this caller in ms,
--            stale entry or false, its remaining life}                  failed
--
-- A failure with a window answers for the key during its cooldown, and while another caller holds
-- the lease. With the lease free and the cooldown over, one caller leads as a probe. A lease that is
-- granted after the window ends the failure.
--
-- One script, because between a look and a lease another process can load and leave, and the key
-- would be loaded twice. Who is not to load has subscribed by being told so. Names of which nobody
-- waits for a change are not among the KEYS: some servers remember all of those.
local floor_name, failed_name = KEYS[1] .. ':floor', KEYS[1] .. ':failed'
-- Changes nothing, and is refused where writes are: after GETEX a server without room would let
-- everything pass.
local refused = redis.pcall('SETRANGE', KEYS[2], 0, '')
local entry, remaining, stored = peek(KEYS[1]), 0, 0
local is_there = entry
if readable(entry) then
  remaining = redis.call('PTTL', KEYS[1])
  local acceptable = ARGV[3] == '1' or #ARGV[3] == 8 and ARGV[3] ~= string.sub(entry, 29, 36)
  local stale = stale_window(entry)
  if acceptable and remaining > stale then return {1, entry, remaining} end
  stored = fence_at(entry, 29)
else
  entry = false
end
local lease, busy = peek(KEYS[2]), false
if lease and #lease == 24 and string.sub(lease, 1, 16) ~= ARGV[1] then
  local left = redis.call('PTTL', KEYS[2])
  -- Without a life of its own it is none of our leases.
  if left >= 0 then busy = left end
end
local failed, failures, shared = peek(failed_name), 0, false
if failed and #failed >= 33 and string.sub(failed, 1, 4) == 'BWF\2' then
  local times, cooldown, window, life = struct.unpack('>I4I8I8I8', failed, 6)
  local age = life - redis.call('PTTL', failed_name)
  local held_up = busy or age < cooldown and cooldown - age
  if window > 0 and held_up and ARGV[3] ~= '0' then
    watch(KEYS[1])
    watch(KEYS[2])
    return {4, failed, held_up, entry, remaining}
  end
  if age < (window > 0 and math.min(2 * window, life) or life) then failures = times end
  shared = age < window and failed
end
if busy then
  watch(KEYS[1])
  watch(KEYS[2])
  return {2, busy, entry, remaining}
end
-- What is there and is no string was read as nothing: an empty one says so.
if not is_there and redis.pcall('SETRANGE', KEYS[1], 0, '') ~= 0 then entry = '' end
if type(refused) == 'table' and not string.find(refused.err, 'WRONGTYPE', 1, true) then
  error(refused.err)
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = math.max(number(peek(floor_name)) + 1, stored + 1, now)
redis.call('SET', KEYS[2], ARGV[1] .. struct.pack('>I8', fence), 'PX', ARGV[2])
if failed and not shared then redis.call('DEL', failed_name) end
return {3, fence, now, entry, remaining, failures, ARGV[3] ~= '0' and shared}
