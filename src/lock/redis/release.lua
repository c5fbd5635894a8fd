-- release: give up a lock.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 which release this is   3 how long that is remembered, in ms
-- gives  1 freed, 0 it was not ours any more, or never
--
-- One script, because a lock that passes on between the two steps would be somebody else's.
if not is_of(peek(KEYS[1]), ARGV[1]) then return was_freed(KEYS[1], ARGV[2]) end
redis.call('DEL', KEYS[1])
note_freed(KEYS[1], ARGV[2], ARGV[3])
return 1
