-- verify: find out whether a claim still has a hold, and subscribe to the next change of the lock.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes
-- gives  1 held, 0 lost: it was deleted, has lapsed or passed on
--
-- One script, because a hold lapses by the server's clock. Reading the holds subscribes to their
-- change.
return holds(KEYS[1], math.floor(server_time() / 1000)).ends[ARGV[1]] and 1 or 0
