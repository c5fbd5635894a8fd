-- release: give up the lock or a place in the queue, and tell whose turn it is.
--
-- KEYS   1 what calls the waiter, if it is one
-- ARGV   1 token, 16 bytes   2 which release this is   3 how long that is remembered, in ms
--        4 name of the queue   5 name of the lock
-- gives  1 freed, 0 the lock was not ours any more, or never
--
-- One script, because between freeing the lock and telling the first of the queue that one may
-- have left, and nobody would be told.
redis.call('DEL', KEYS[1])
local lock = ARGV[5]
local held = peek(lock)
local is_ours = is_of(held, ARGV[1])
leave(ARGV[4], ARGV[1])
if is_ours then
  redis.call('DEL', lock)
  note_freed(lock, ARGV[2], ARGV[3])
end
if is_ours or not held then
  drop_silent(ARGV[4], math.floor(clock() / 1000))
  call_first(lock, ARGV[4])
end
if is_ours then return 1 end
return was_freed(lock, ARGV[2])
