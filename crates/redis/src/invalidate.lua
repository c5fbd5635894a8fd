-- invalidate: remove the entry or make it stale, end the lease and raise the watermark.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- ARGV   1 how long watermarks are kept, in ms
--        2 '1' if an entry with a stale window stays, as stale
--        3 watermark and 4 failed, if they are not among the KEYS
-- gives  1 if there was an entry, 0 if there was none
--
-- One script, because a commit between two steps would survive the invalidation.
local watermark_name, failed_name = KEYS[3] or ARGV[3], KEYS[4] or ARGV[4]
local entry, lease, watermark = peek(KEYS[1]), peek(KEYS[2]), number(peek(watermark_name))
watermark = math.max(watermark, server_time(), lease_fence(lease) or 0)
local failed, waiting = split_failure(peek(failed_name))
local stale = 0
if readable(entry) then
  watermark = math.max(watermark, fence_at(entry, 29))
  stale = stale_window(entry)
end
redis.call('SET', watermark_name, struct.pack('>I8', watermark), 'PX', ARGV[1])
-- Callers of a key in cooldown are subscribed to the entry and the lease. There may be neither, and
-- then this is the change that is reported to them.
if failed and not lease then redis.pcall('SET', KEYS[2], '', 'PX', 1) end
redis.call('DEL', KEYS[2], failed_name)
if ARGV[2] == '1' and stale > 0 then
  -- The mark keeps it stale. By its expiry alone it would be fresh again if the clock were set
  -- back.
  redis.call('SETRANGE', KEYS[1], 6, expired)
  redis.call('PEXPIRE', KEYS[1], math.min(stale, redis.call('PTTL', KEYS[1])))
else
  redis.call('DEL', KEYS[1])
end
tell_waiters(KEYS[2], lease)
tell(KEYS[2], waiting)
return readable(entry) and 1 or 0
