-- count: how many holds there are.
--
-- KEYS   1 lock
-- gives  their number
--
-- One script, because a hold that has lapsed is told from one that has not by the server's clock.
return holds(KEYS[1], math.floor(server_time() / 1000)).count
