-- release: give up the lock or a place in the queue, and tell the waiter whose turn it is.
--
-- KEYS   1 lock   2 queue   3 its times
-- ARGV   1 token, 16 bytes   2 queue and 3 its times, if they are not among the KEYS
-- gives  1 freed, 0 this claim did not hold the lock
--
-- One script, because the first waiter could leave between the two steps, and then no waiter would be
-- told.
local lock, queue, seen = KEYS[1], KEYS[2] or ARGV[2], KEYS[3] or ARGV[3]
local held = peek(lock)
local is_ours, turn = is_of(held, ARGV[1]), nil
if is_there(queue) then
  leave(lock, queue, seen, ARGV[1])
  if is_ours or not held then
    drop_silent(lock, queue, seen, math.floor(server_time() / 1000))
    turn = first(queue)
  end
end
-- Servers before 7.2 have begun to track the lock with these reads. Its end ends that.
if is_ours then
  redis.call('DEL', lock)
  tell(lock, marks_of(held))
end
if turn then call(lock, turn) end
return is_ours and 1 or 0
