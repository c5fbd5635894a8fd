-- commit, as it was before entries had tags. It knows version 1 of an entry only.
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
-- commit: store the entry and give up the lease.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- ARGV   1 token, 16 bytes   2 envelope   3 life in ms, 0 to keep nothing
--        4 fence   5 when the lease was granted, in us   6 how long watermarks are kept, in us
--        7 watermark and 8 failed, if they are not among the KEYS
-- gives  1 stored, 0 superseded, or the error of a server that refuses the write
--
-- One script, because between two writes in two steps, a reader would find neither an entry nor a
-- lease, and would load again. And an invalidation between the check and the write would be undone.

-- Changes nothing, but is refused if writes are refused. It has to come first: after a GETEX, a
-- full server would accept all writes of the script.
local refused = redis.pcall('SETRANGE', KEYS[2], 0, '')
local watermark_name, failed_name = KEYS[3] or ARGV[7], KEYS[4] or ARGV[8]
local entry, lease, watermark = peek(KEYS[1]), peek(KEYS[2]), number(peek(watermark_name))
local holds = lease and string.sub(lease, 1, 16) == ARGV[1]
local stored, newer = 0, false
if entry and #entry >= 4 and string.sub(entry, 1, 3) == 'BWE' then
  newer = string.byte(entry, 4) > 1
  if not newer and #entry >= 88 then stored = fence_at(entry, 29) end
end
local superseded = newer
if not holds then
  local now, fence = server_time(), tonumber(ARGV[4])
  local age = now - ARGV[5]
  -- If the clock was set back, it is unknown what happened since the grant. It was set back if the
  -- grant is in the future, or if less time has passed than the holder has counted.
  local is_known = age >= 0 and age < tonumber(ARGV[6]) and stored_at(ARGV[2]) <= now + drift
  superseded = newer or not is_known or fence <= watermark or fence <= stored
end
local set = {}
-- Protected, so that the lease ends even if the server is out of memory.
if not superseded and ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
elseif not superseded then
  if type(refused) == 'table' and not string.find(refused.err, 'WRONGTYPE', 1, true) then
    set = refused
  else
    set = redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  end
end
if holds then redis.call('DEL', KEYS[2]) end
if not superseded then redis.call('DEL', failed_name) end
if set.err then return set end
return superseded and 0 or 1
