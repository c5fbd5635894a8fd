-- contested: the second part of take.lua, for a lock that is held or has waiters, or whose fence is not
-- simply the time.
--
-- KEYS, ARGV and replies: see take.lua. The script is take.lua, grant.lua, the preludes and this file, so that the
-- common case ends before the functions of the preludes are created.
local seen, silence = KEYS[4] or ARGV[7], tonumber(ARGV[3])
-- The expiry of its name ends the tracking if a waiter dies, and costs a live one a request, so it is rare.
-- It is set before anything is read: servers before 7.2 would report it to this very waiter.
local is_tracked = silence > 0 and ARGV[4] == ''
if is_tracked then redis.pcall('SET', KEYS[1], '', 'NX', 'PX', 4 * silence) end
local dropped = drop_silent(lock, queue, seen, math.floor(now / 1000))
local held = peek(lock)
local is_ours = is_of(held, ARGV[1])
local turn = first(queue)
if is_ours or not held and (not turn or turn == ARGV[1]) then
  local fence = is_ours and holder(held) or next_fence(counter, now, last)
  write(lock, ARGV[1], fence, now, ARGV[2], marks_of(held))
  leave(lock, queue, seen, ARGV[1])
  if is_tracked then redis.call('DEL', KEYS[1]) end
  return {1, fence}
end
if dropped > 0 and not held then call(lock, turn) end
local ahead = 0
if silence > 0 then
  wait(queue, seen, ARGV[1], now, silence)
  if ARGV[4] ~= '' then redis.pcall('SET', KEYS[1], ARGV[4], 'PX', silence) end
  ahead = redis.call('ZRANK', queue, ARGV[1])
else
  leave(lock, queue, seen, ARGV[1])
  leave_mark(lock, held, ARGV[4])
  ahead = is_there(queue) and redis.call('ZCARD', queue) or 0
end
watch(KEYS[1])
if not held then return {2, -1, -1, 0, ahead} end
local fence, renewed = holder(held)
-- Only the next waiter needs PTTL. It also reads the lock, so on some servers it would subscribe the
-- others to every change.
local left = (ahead == 0 or silence == 0) and redis.call('PTTL', lock) or -1
return {2, left, fence, renewed, ahead + 1}
