-- abandon: give up leases.
--
-- KEYS   1 lease, and any number of others
-- ARGV   1 their tokens in the same order, 16 bytes each
-- gives  how many were given up. A lease that another token holds stays.
--
-- One script, because between a read and a delete in two steps, another flight could take the lease.
local gives = 0
for number, name in ipairs(KEYS) do
  local lease, token = peek(name), string.sub(ARGV[1], 16 * number - 15, 16 * number)
  if lease and string.sub(lease, 1, 16) == token then
    gives = gives + redis.call('DEL', name)
    tell_waiters(name, lease)
  end
end
return gives
