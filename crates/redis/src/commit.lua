-- commit: store the entry and give up the lease.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- ARGV   1 token, 16 bytes   2 envelope   3 life in ms, 0 to keep nothing
--        4 fence   5 when the lease was granted, in us
--        6 1 for a value that was put, which outdates all loads before, else 0
-- gives  1 stored, 0 superseded, or the error of a server that refuses the write
--
-- One script, because between two writes in two steps, a reader would find neither an entry nor a
-- lease, and would load again. And an invalidation between the check and the write would be undone.
local entry, lease, watermark = peek(KEYS[1]), peek(KEYS[2]), number(peek(KEYS[3]))
local is_ours = lease and string.sub(lease, 1, 16) == ARGV[1]
-- If a late copy of the acquire has taken a lease under this token, its fence is another one.
local holds = is_ours and lease_fence(lease) == tonumber(ARGV[4])
local is_versioned = entry and #entry >= 4 and string.sub(entry, 1, 3) == 'BWE'
local newer = is_versioned and string.byte(entry, 4) > latest
local stored = readable(entry) and fence_at(entry, 29) or 0
local superseded = newer
if not holds then
  local now, fence = server_time(), tonumber(ARGV[4])
  local age, counted = now - ARGV[5], stored_at(ARGV[2]) - ARGV[5]
  -- If the clock was set back, it is unknown what happened since the grant. It was set back if the
  -- grant is in the future, or if less time has passed than the holder has counted: by more than
  -- two clocks differ in their speed.
  local is_known = age >= 0 and age < watermark_life * 1000 and counted <= 1.01 * age + 1000
  superseded = newer or not is_known or fence <= watermark or fence <= stored
end
local set, message = {}, nil
-- What was put may be gone before those loads end.
if not superseded and ARGV[6] == '1' then
  set = redis.pcall('SET', KEYS[3], struct.pack('>I8', tonumber(ARGV[4])), 'PX', watermark_life)
end
-- Protected, so that the lease ends even if the server is out of memory.
if not superseded and ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
elseif not (superseded or set.err) then
  set = redis.pcall('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  -- Those that wait for this very lease can have the entry at once. Longer ones are read by those that
  -- need them: each would be copied for each process.
  if holds and not set.err and #ARGV[2] <= longest_told then message = KEYS[1] .. ARGV[2] end
end
if is_ours then redis.call('DEL', KEYS[2]) end
if not superseded then
  -- A lease that has lapsed carries no marks of those that wait since a cooldown.
  if not is_ours then tell(KEYS[2], select(2, split_failure(peek(KEYS[4])))) end
  redis.call('DEL', KEYS[4])
end
if is_ours or not (superseded or set.err) then tell_waiters(KEYS[2], lease, message) end
if set.err then return set end
return superseded and 0 or 1
