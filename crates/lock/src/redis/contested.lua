-- contested: the second part of take.lua, for a lock that is not free, or whose fence is not simply
-- the time.
--
-- KEYS, ARGV and replies: see take.lua. The script is take.lua, grant.lua, the preludes and this file, so that the
-- common case ends before the functions of the preludes are created.
local from, mark = ARGV[4] and ARGV[3] or '', ARGV[4] or ''
local held = peek(lock)
local is_ours = is_of(held, ARGV[1])
local is_from = is_lock(held) and string.sub(held, 17, lock_length) == from
if held and not is_ours and not is_from then
  leave_mark(lock, held, mark)
  watch(lock)
  local fence, renewed = holder(held)
  return {2, redis.call('PTTL', lock), fence, renewed}
end
local fence = is_ours and holder(held) or next_fence(counter, now, last)
write(lock, ARGV[1], fence, now, ARGV[2], marks_of(held))
return {1, fence}
