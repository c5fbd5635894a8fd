-- prelude: the functions that the scripts of the store share. It follows the prelude of all
-- protocols.

-- A string. False if nothing is there.
local function peek(name)
  return read('GET', name)
end

-- Writes, unless the server refuses that for now, as a full one does. The refusal of a replica is
-- raised, because another server is the primary.
local function try(...)
  local reply = redis.pcall(...)
  local refused = type(reply) == 'table' and reply.err
  if refused and string.find(refused, 'READONLY', 1, true) then error(refused) end
end

-- The length of an entry without its tags and its value.
local header_length = 96

-- The latest version of an entry that this script can read.
local latest = 1

-- Whether bytes are an entry of a version that this script can read.
local function readable(entry)
  if not entry or #entry < header_length or string.sub(entry, 1, 3) ~= 'BWE' then return false end
  local version = string.byte(entry, 4)
  return version >= 1 and version <= latest
end

-- How long an entry stays after its ttl.
local function stale_window(entry)
  local revalidated, on_error, validated = struct.unpack('>I8I8I8', entry, 53)
  return math.max(revalidated, on_error, validated)
end

-- How far two clocks may drift apart during one load, in us. If a stored time is further in the
-- future, the server's clock was set back after that time was read.
local drift = 1000000

-- The length from which replies to others would wait for an entry.
local large = 65536

-- The length of the longest entry that a message carries.
local longest_told = 16384

-- How long watermarks are kept, in ms.
local watermark_life = 600000

-- When an entry was stored, in us: the server's time of the grant, and the time that the holder has
-- counted since then.
local function stored_at(entry)
  return (struct.unpack('>I8', entry, 37))
end

-- Whether an entry was made stale before the end of its ttl.
local function is_expired(entry)
  return struct.unpack('>I8', entry, 89) > 0
end

-- Whether an entry is fresh by its own times. One that was stored later than now is not.
local function is_fresh(entry, now)
  local age = now - stored_at(entry)
  return age >= -drift and age < 1000 * struct.unpack('>I8', entry, 45) and not is_expired(entry)
end

-- The length of a lease: token, 16 bytes, fence, 8, and term in ms, 8. Two things may follow. The first
-- is the trace of its load, a W3C traceparent. Then come the marks of the processes that wait for its
-- end, 16 hexadecimal digits each.
local lease_length, trace_length = 32, 55

-- The fence of a lease, and where its marks begin, or false if the bytes are no lease. All parts but the trace
-- are multiples of the length of a mark.
local function lease_fence(lease)
  if not lease or #lease < lease_length then return false end
  local first = lease_length + 1
  if #lease % mark_length == trace_length % mark_length then first = first + trace_length end
  if not has_marks(lease, first) then return false end
  return fence_at(lease, 17), first
end

-- A failure without its marks, and the marks. Processes leave them during a cooldown in which no
-- caller has the lease. They follow the message and a zero byte.
local function split_failure(failed)
  local last = failed and string.find(failed, '%z[0-9a-f]+$', 34)
  if not last or not has_marks(failed, last + 1) then return failed, '' end
  return string.sub(failed, 1, last - 1), string.sub(failed, last + 1)
end

-- Tells the processes that have left a mark at a lease that it has ended.
local function tell_waiters(name, lease, message)
  local fence, first = lease_fence(lease)
  if fence and #lease >= first then tell(name, string.sub(lease, first), message) end
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

-- How long a tag is kept in addition to the time for which it is needed, in ms.
local tag_life = 3600000

-- Whether bytes are the epochs of a tag.
local function is_tag(value)
  return value and (#value == 16 or #value == 32)
end

-- When an epoch at an offset began, in us.
local function epoch_time(value, offset)
  return (struct.unpack('>I7', value, offset))
end

-- A new epoch, above the last one. Its random byte is odd if the tag has changed, and even if it
-- was absent.
local function new_epoch(now, random, is_change, last)
  local byte = string.byte(random)
  return struct.pack('>I7', math.max(now, last + 1)) .. string.char(byte - byte % 2 + is_change)
end
