-- verify: find out whether a claim still has a lock, and subscribe to its next change.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes
-- gives  1 held, 0 lost: it was deleted, has lapsed or passed on
--
-- One script, because what comes between the look and the subscription would not be told. It reads
-- by GET, which client tracking registers, and writes nothing: the server would tell us of that.
return is_of(read('GET', KEYS[1]), ARGV[1]) and 1 or 0
