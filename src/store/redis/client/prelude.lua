-- prelude: the functions that scripts of all protocols share.

-- The value that a command reads, or '' if the name holds another type, set by another program.
-- Other errors are raised, so that a refusal is not taken for an empty name.
local function read(command, ...)
  local value = redis.pcall(command, ...)
  if type(value) ~= 'table' or not value.err then return value end
  if string.find(value.err, 'WRONGTYPE', 1, true) then return '' end
  error(value.err)
end

-- A string, read without subscribing the caller to its next change: GETEX counts as a write, which
-- client tracking does not register. False if nothing is there.
local function peek(name)
  return read('GETEX', name)
end

-- Subscribes the caller to the next change of a name, even if nothing is there.
local function watch(name)
  read('GET', name)
end

-- The fence in the 8 bytes at an offset. Zero if it is above 2^53: a script cannot count further,
-- so no such fence was ever given, and damaged bytes must not block their key.
local function fence_at(bytes, offset)
  local fence = struct.unpack('>I8', bytes, offset)
  return fence >= 0 and fence < 9007199254740992 and fence or 0
end

-- The server's time, in us.
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
