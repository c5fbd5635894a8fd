-- renew: start the lease of a lock again.
--
-- KEYS   1 lock
-- ARGV   1 token, 16 bytes   2 lease in ms
-- gives  1 held, 0 lost: its lease has ended, or another claim has it
--
-- One script, because another claim could take the lock between the two steps, and its lease would be
-- prolonged.
local held = peek(KEYS[1])
if not is_of(held, ARGV[1]) then return 0 end
write(KEYS[1], ARGV[1], holder(held), server_time(), ARGV[2], marks_of(held))
return 1
