-- prelude: what stands before the scripts of the store, after that of all scripts.

-- Whether bytes are an entry that can be read here.
local function readable(entry)
  return entry and #entry >= 88 and string.sub(entry, 1, 4) == 'BWE\1'
end

-- How long an entry stays after having been fresh.
local function stale_window(entry)
  local revalidated, on_error, validated = struct.unpack('>I8I8I8', entry, 53)
  return math.max(revalidated, on_error, validated)
end

-- How far two clocks may drift apart during one load, in us. A time of ours that is further ahead
-- of the server's clock was read before that clock was set back.
local drift = 1000000

-- How long watermarks live, in ms.
local watermark_life = 600000

-- What stands in an entry that was made stale before its time.
local expired = 'EX'

-- When an entry was stored, by the server's time when its lease was granted and what its holder has
-- counted since, in us.
local function stored_at(entry)
  return (struct.unpack('>I8', entry, 37))
end

-- The life that is left to an entry, in ms: its own and the server's word for it, whichever is
-- less. The server counts expiry by its wall clock, so after that was set back it promises too
-- much. An entry that was stored later than now has none.
local function life_left(name, entry, now)
  local age, stale = now - stored_at(entry), stale_window(entry)
  if age < -drift then return 0 end
  local left = struct.unpack('>I8', entry, 45) + stale - math.max(0, age) / 1000
  if string.sub(entry, 7, 8) == expired then left = math.min(left, stale) end
  return math.max(0, math.ceil(math.min(left, redis.call('PTTL', name))))
end

-- The fence of a lease, or false if that is none.
local function lease_fence(lease)
  return lease and #lease == 32 and fence_at(lease, 17)
end

-- What is left of a lease, in ms. A lease that has more than its term was granted before the clock
-- was set back: its term begins again, so a holder that lives renews it, and one that died
-- is waited for no longer than that.
local function lease_left(name, lease)
  local left, term = redis.call('PTTL', name), struct.unpack('>I8', lease, 25)
  if left <= term then return left end
  redis.call('PEXPIRE', name, term)
  return term
end

-- Eight bytes as a fence, and anything else as zero.
local function number(bytes)
  return bytes and #bytes == 8 and fence_at(bytes, 1) or 0
end
