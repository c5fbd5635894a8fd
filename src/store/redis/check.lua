-- check: whether this user may run the commands of the other scripts.
--
-- KEYS   1 a name of ours that is not used
-- gives  for each command that is refused, its name and the error of the server
--
-- One script, because the commands of a script are refused with other errors than those of a
-- client, and because the caller wants to know all missing permissions at once.
local gives = {}
local function note(command, reply)
  if type(reply) == 'table' and reply.err then
    gives[#gives + 1] = command
    gives[#gives + 1] = reply.err
  end
end
note('get', redis.pcall('GET', KEYS[1]))
note('getex', redis.pcall('GETEX', KEYS[1]))
note('setrange', redis.pcall('SETRANGE', KEYS[1], 0, ''))
note('time', redis.pcall('TIME'))
note('set', redis.pcall('SET', KEYS[1], '', 'PX', 1000))
note('pttl', redis.pcall('PTTL', KEYS[1]))
note('pexpire', redis.pcall('PEXPIRE', KEYS[1], 1000))
note('del', redis.pcall('DEL', KEYS[1]))
return gives
