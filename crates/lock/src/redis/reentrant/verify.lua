-- verify: find out whether a claim still has a hold, and subscribe to the next change of the lock.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes
-- gives  1 held, 0 lost: it was deleted, its lease has ended, or another owner has the lock
--
-- One script, because the server's clock ends a hold. Reading the holds subscribes to their change.
return holds(KEYS[1], math.floor(server_time() / 1000)).ends[ARGV[1]] and 1 or 0
