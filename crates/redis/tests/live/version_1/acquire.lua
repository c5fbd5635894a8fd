-- acquire, as it was before entries had tags. It knows version 1 of an entry only.
-- prelude: the functions that scripts of all protocols share.

-- The value that a command reads, or '' if the name holds another type, set by another program.
-- Other errors are raised, so that a refusal is not taken for an empty name.
local function read(command, ...)
  local value = redis.pcall(command, ...)
  if type(value) ~= 'table' or not value.err then return value end
  if string.find(value.err, 'WRONGTYPE', 1, true) then return '' end
  error(value.err)
end

-- A string, read without subscribing the caller to its next change: GETEX counts as a write, which
-- client tracking does not register. False if nothing is there.
local function peek(name)
  return read('GETEX', name)
end

-- Subscribes the caller to the next change of a name, even if nothing is there.
local function watch(name)
  read('GET', name)
end

-- The fence in the 8 bytes at an offset. Zero if it is above 2^53: a script cannot count further,
-- so no such fence was ever given, and damaged bytes must not block their key.
local function fence_at(bytes, offset)
  local fence = struct.unpack('>I8', bytes, offset)
  return fence >= 0 and fence < 9007199254740992 and fence or 0
end

-- The server's time, in us.
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
-- prelude: the functions that the scripts of the store share. It follows the prelude of all
-- protocols.

-- Whether bytes are an entry of a version that this script can read.
local function readable(entry)
  return entry and #entry >= 88 and string.sub(entry, 1, 4) == 'BWE\1'
end

-- How long an entry stays after its ttl.
local function stale_window(entry)
  local revalidated, on_error, validated = struct.unpack('>I8I8I8', entry, 53)
  return math.max(revalidated, on_error, validated)
end

-- How far two clocks may drift apart during one load, in us. If a stored time is further in the
-- future, the server's clock was set back after that time was read.
local drift = 1000000

-- How long watermarks are kept, in ms.
local watermark_life = 600000

-- The mark of an entry that was made stale before the end of its ttl.
local expired = 'EX'

-- When an entry was stored, in us: the server's time of the grant, and the time that the holder has
-- counted since then.
local function stored_at(entry)
  return (struct.unpack('>I8', entry, 37))
end

-- The remaining life of an entry, in ms: by its own times or by the server's expiry, whichever is
-- less. The server counts expiry by its wall clock, so its value is too large after that was set
-- back. An entry that was stored later than now has none.
local function life_left(name, entry, now)
  local age, stale = now - stored_at(entry), stale_window(entry)
  if age < -drift then return 0 end
  local left = struct.unpack('>I8', entry, 45) + stale - math.max(0, age) / 1000
  if string.sub(entry, 7, 8) == expired then left = math.min(left, stale) end
  return math.max(0, math.ceil(math.min(left, redis.call('PTTL', name))))
end

-- The fence of a lease, or false if the bytes are no lease.
local function lease_fence(lease)
  return lease and #lease == 32 and fence_at(lease, 17)
end

-- The remaining time of a lease, in ms. If that is more than its term, the clock was set back after
-- the grant, and the term begins again. A living holder renews it, and callers wait for a dead one
-- no longer than a term.
local function lease_left(name, lease)
  local left, term = redis.call('PTTL', name), struct.unpack('>I8', lease, 25)
  if left <= term then return left end
  redis.call('PEXPIRE', name, term)
  return term
end

-- The fence in eight bytes. Zero for anything else.
local function number(bytes)
  return bytes and #bytes == 8 and fence_at(bytes, 1) or 0
end
-- acquire: read the entry, and take the lease if the entry is not acceptable and no other claim
-- holds the lease.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- ARGV   1 token, 16 bytes   2 term in ms
--        3 '1' if a fresh entry is acceptable, '0' if none is and failures are ignored, or the
--            fence of the one entry that is not acceptable, as bytes
--        4 until when the caller waits for the reply, in us by the server's clock, or '' if the
--            caller does not know that clock
--        5 tokens whose leases this caller may take over, 16 bytes each
--        6 watermark and 7 failed, if they are not among the KEYS
-- gives  {1, now, entry, its remaining life in ms}                      found
--        {2, now, what is left of the lease in ms, stale entry or false,
--            its remaining life}                                        busy
--        {3, now, fence, stale entry or false, its remaining life,
--            failures in a row, the failure that other callers share
--            while this one probes, or false}                           lead
--            where '' stands for an entry that is no string
--        {4, now, failure, for how long it holds in ms,
--            stale entry or false, its remaining life}                  failed
--        {5, now}                                                       late
--            where now is the server's time in us
--
-- A failure with a window is the result during its cooldown, and while another caller holds the
-- lease. With the lease free and the cooldown over, one caller leads as a probe. A lease that is
-- granted after the window ends the failure.
--
-- One script, because between a read and a lease in two steps, another process could load the key
-- and finish, and the key would be loaded twice. The GET of this script subscribes a caller that gets
-- busy or failed to changes.
local now = server_time()
-- The caller has stopped waiting, so a lease would have no holder.
if ARGV[4] ~= '' and now > tonumber(ARGV[4]) then return {5, now} end
-- Whether no other flight can hold a lease under this token.
local function is_ours(token)
  if token == ARGV[1] then return true end
  for start = 1, #ARGV[5], 16 do
    if token == string.sub(ARGV[5], start, start + 15) then return true end
  end
  return false
end
local watermark_name, failed_name = KEYS[3] or ARGV[6], KEYS[4] or ARGV[7]
-- Changes nothing, but is refused if writes are refused. It has to come first: after a GETEX, a
-- full server would accept all writes of the script.
local refused = redis.pcall('SETRANGE', KEYS[2], 0, '')
local entry, remaining, stored = peek(KEYS[1]), 0, 0
local is_there = entry
if readable(entry) then
  remaining = life_left(KEYS[1], entry, now)
  local acceptable = ARGV[3] == '1' or #ARGV[3] == 8 and ARGV[3] ~= string.sub(entry, 29, 36)
  local stale = stale_window(entry)
  if acceptable and remaining > stale then return {1, now, entry, remaining} end
  stored = fence_at(entry, 29)
end
if remaining == 0 then entry = false end
local lease, busy = peek(KEYS[2]), false
if lease_fence(lease) and not is_ours(string.sub(lease, 1, 16)) then
  local left = lease_left(KEYS[2], lease)
  -- A value without an expiry is not a lease of ours.
  if left >= 0 then busy = left end
end
local failed, failures, shared = peek(failed_name), 0, false
if failed and #failed >= 33 and string.sub(failed, 1, 4) == 'BWF\2' then
  local times, cooldown, window, life = struct.unpack('>I4I8I8I8', failed, 6)
  local age = life - redis.call('PTTL', failed_name)
  -- If it has more life left than it was given, the clock was set back, and its age is unknown.
  local is_known = age >= 0
  local held_up = busy or age < cooldown and cooldown - age
  if window > 0 and is_known and held_up and ARGV[3] ~= '0' then
    watch(KEYS[1])
    watch(KEYS[2])
    return {4, now, failed, held_up, entry, remaining}
  end
  if age < (window > 0 and math.min(2 * window, life) or life) then failures = times end
  shared = is_known and age < window and failed
end
if busy then
  watch(KEYS[1])
  watch(KEYS[2])
  return {2, now, busy, entry, remaining}
end
if is_there == '' then entry = '' end
if type(refused) == 'table' and not string.find(refused.err, 'WRONGTYPE', 1, true) then
  error(refused.err)
end
local fence = math.max(number(peek(watermark_name)) + 1, stored + 1, now)
-- While the clock is behind a time that it showed before, the time is not above all fences, and an
-- invalidation cannot raise the watermark above fences that it does not find. So each new fence
-- becomes the watermark then, and a lapsed lease stores nothing.
if fence > now then redis.call('SET', watermark_name, struct.pack('>I8', fence), 'PX', watermark_life) end
redis.call('SET', KEYS[2], ARGV[1] .. struct.pack('>I8I8', fence, ARGV[2]), 'PX', ARGV[2])
if failed and not shared then redis.call('DEL', failed_name) end
return {3, now, fence, entry, remaining, failures, ARGV[3] ~= '0' and shared}
