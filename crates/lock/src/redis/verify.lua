-- verify: find out whether a claim still has a lock, and subscribe to its next change.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes
-- gives  1 held, 0 lost: it was deleted, its lease has ended, or another claim has it
--
-- One script, because a change between the read and the subscription would not be reported. It reads by
-- GET, which client tracking registers. It writes nothing: the server would report our own write.
return is_of(read('GET', KEYS[1]), ARGV[1]) and 1 or 0
