-- invalidate: remove the entry or make it stale, end the lease and raise the watermark.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- ARGV   1 'hard' to remove the entry, 'soft' to leave one with a stale window, as stale
-- gives  1 if there was an entry, 0 if there was none
--
-- One script, because a commit between two steps would survive the invalidation.
local entry, lease, now = peek(KEYS[1]), peek(KEYS[2]), server_time()
local watermark = math.max(number(peek(KEYS[3])), now, lease_fence(lease) or 0)
local _, waiting = split_failure(peek(KEYS[4]))
local stale = 0
if readable(entry) then
  watermark = math.max(watermark, fence_at(entry, 29))
  stale = stale_window(entry)
end
-- The first write of a script that needs memory is refused by a full server, and later ones are not.
redis.call('DEL', KEYS[2], KEYS[4])
redis.call('SET', KEYS[3], struct.pack('>I8', watermark), 'PX', watermark_life)
if ARGV[1] == 'soft' and stale > 0 then
  -- Once only, so that it does not end later.
  if not is_expired(entry) then redis.call('SETRANGE', KEYS[1], 88, struct.pack('>I8', now)) end
  redis.call('PEXPIRE', KEYS[1], math.min(stale, redis.call('PTTL', KEYS[1])))
else
  redis.call('DEL', KEYS[1])
end
tell_waiters(KEYS[2], lease)
tell(KEYS[2], waiting)
return readable(entry) and 1 or 0
