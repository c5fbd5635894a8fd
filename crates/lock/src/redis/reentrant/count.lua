-- count: how many holds there are.
--
-- KEYS   1 lock
-- gives  their number
--
-- One script, because the server's clock decides which holds have ended.
return holds(KEYS[1], math.floor(server_time() / 1000)).count
