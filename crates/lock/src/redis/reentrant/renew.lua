-- renew: start the lease of a hold again.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms
-- gives  1 held, 0 lost: its lease has ended, or another owner has the lock
--
-- One script, because a hold whose lease ends between the two steps would be restored.
local now = math.floor(server_time() / 1000)
local found = holds(KEYS[1], now)
if not found.ends[ARGV[1]] then return 0 end
keep(KEYS[1], found, ARGV[1], now, tonumber(ARGV[2]))
return 1
