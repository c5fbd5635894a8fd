-- acquire: read the entry, and take the lease if the entry is not acceptable and no other claim
-- holds the lease.
--
-- KEYS   1 entry   2 lease   3 watermark   4 failed
-- ARGV   1 token, 16 bytes, and the trace of its load, or nothing   2 term in ms
--        3 '1' if a fresh entry is acceptable, '0' if none is and failures are ignored, or the
--            fence of the one entry that is not acceptable, as bytes
--        4 the mark to leave at a lease or a failure that the caller waits for, or ''
--        5 until when the caller waits for the reply, in us by the server's clock, or '' if the
--            caller does not know that clock
-- gives  {1, now, entry}                                                found
--        {2, now, other entry or false, what is left of the lease in
--            ms, its fence, and the trace of the load if it has one}    busy
--        {3, now, other entry or false, fence, failures in a row, the
--            failure that other callers share while this one probes,
--            or false}                                                  lead
--        {4, now, other entry or false, failure, for how long it
--            holds in ms}                                               failed
--        {5, now}                                                       late
--        {6, now, its length, its fence}                                found, and large: read it
--            over the connection for large values
--            where now is the server's time in us, an other entry is stale, over or not
--            acceptable, and '' stands for one that is no string
--
-- A failure with a window is the result during its cooldown, and while another caller holds the
-- lease. With the lease free and the cooldown over, one caller leads as a probe. A lease that is
-- granted after the window ends the failure.
--
-- One script, because between a read and a lease in two steps, another process could load the key
-- and finish, and the key would be loaded twice. A caller that gets busy or failed leaves its mark, and
-- the script that ends the lease or the failure tells it.
local now = server_time()
-- The caller has stopped waiting, so a lease would have no holder.
if ARGV[5] ~= '' and now > tonumber(ARGV[5]) then return {5, now} end
local entry, stored = peek(KEYS[1]), 0
if readable(entry) then
  local acceptable = ARGV[3] == '1' or #ARGV[3] == 8 and ARGV[3] ~= string.sub(entry, 29, 36)
  if acceptable and is_fresh(entry, now) then
    if #entry >= large then return {6, now, #entry, fence_at(entry, 29)} end
    return {1, now, entry}
  end
  stored = fence_at(entry, 29)
elseif entry ~= '' then
  entry = false
end
local token, trace = string.sub(ARGV[1], 1, 16), string.sub(ARGV[1], 17)
local lease, busy, marks = peek(KEYS[2]), false, ''
local held, first = lease_fence(lease)
local holder = held and string.sub(lease, 1, 16)
if held and holder == token then
  marks = string.sub(lease, first)
elseif held then
  local left = lease_left(KEYS[2], lease)
  -- A value without an expiry is not a lease of ours.
  if left >= 0 then
    busy = left
    -- A full server refuses the mark, and then the process polls.
    if adds_mark(lease, first, ARGV[4]) then try('SETRANGE', KEYS[2], #lease, ARGV[4]) end
  end
end
local failed, waiting = split_failure(peek(KEYS[4]))
local failures, shared = 0, false
if failed and #failed >= 33 and string.sub(failed, 1, 4) == 'BWF\2' then
  local times, cooldown, window, life = struct.unpack('>I4I8I8I8', failed, 6)
  local age = life - redis.call('PTTL', KEYS[4])
  -- If it has more life left than it was given, the clock was set back, and its age is unknown.
  local is_known = age >= 0
  local held_up = busy or age < cooldown and cooldown - age
  if window > 0 and is_known and held_up and ARGV[3] ~= '0' then
    -- A full server refuses the mark, and then the process asks again after a second at most.
    if not busy and adds_mark(waiting, 1, ARGV[4]) then
      local mark = waiting == '' and '\0' .. ARGV[4] or ARGV[4]
      try('SETRANGE', KEYS[4], #failed + (waiting == '' and 0 or 1 + #waiting), mark)
    end
    return {4, now, entry, failed, held_up}
  end
  if age < (window > 0 and math.min(2 * window, life) or life) then failures = times end
  shared = is_known and age < window and failed
end
if busy then
  -- Without a trace it is nil, which ends a reply.
  local other = first > lease_length + 1 and string.sub(lease, lease_length + 1, first - 1) or nil
  return {2, now, entry, busy, held, other}
end
-- A request may come twice. While its lease holds, it is granted again as it was. After the end of
-- that, for example by an invalidation, the new fence tells the two leases apart.
local is_again = holder == token
local fence = is_again and held or math.max(number(peek(KEYS[3])) + 1, stored + 1, now)
local term = is_again and math.max(ARGV[2], lease_left(KEYS[2], lease)) or ARGV[2]
-- While the clock is behind a time that it showed before, the time is not above all fences, and an
-- invalidation cannot raise the watermark above fences that it does not find. So each new fence
-- becomes the watermark then, and a lapsed lease stores nothing.
if fence > now then redis.call('SET', KEYS[3], struct.pack('>I8', fence), 'PX', watermark_life) end
local taken = token .. struct.pack('>I8I8', fence, term) .. trace
-- The end of the lease is told to those as well that wait since a cooldown. If others wait for the
-- lease already, those ask again now.
if marks ~= '' then tell(KEYS[2], waiting) end
redis.call('SET', KEYS[2], taken .. (marks == '' and waiting or marks), 'PX', term)
if failed and not shared then redis.call('DEL', KEYS[4]) end
return {3, now, entry, fence, failures, ARGV[3] ~= '0' and shared}
