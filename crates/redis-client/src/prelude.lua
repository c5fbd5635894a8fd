-- prelude: the functions that scripts of all protocols share.

-- The value that a command reads, or '' if the name holds another type, set by another program.
-- Other errors are raised, so that a refusal is not taken for an empty name.
local function read(command, ...)
  local value = redis.pcall(command, ...)
  if type(value) ~= 'table' or not value.err then return value end
  if string.find(value.err, 'WRONGTYPE', 1, true) then return '' end
  error(value.err)
end

-- The fence in the 8 bytes at an offset. Zero if it is above 2^53: a script cannot count further,
-- so no such fence was ever given, and damaged bytes must not block their key.
local function fence_at(bytes, offset)
  local fence = struct.unpack('>I8', bytes, offset)
  return fence >= 0 and fence < 9007199254740992 and fence or 0
end

-- The length of a mark, and how many marks a value can have. The process of one more polls.
local mark_length, most_marks = 16, 1000

-- Whether a value has nothing but marks from a place on. There may be hundreds, and each process that waits
-- asks, so only the last one is looked at.
local function has_marks(value, first)
  local length = #value - first + 1
  if length == 0 then return true end
  return length > 0 and length % mark_length == 0 and string.find(value, '^[0-9a-f]+$', -mark_length)
end

-- Whether a mark is to be added to those that a value has from a place on.
local function adds_mark(value, first, mark)
  local is_full = #value - first + 1 >= most_marks * mark_length
  return mark ~= '' and not is_full and not string.find(value, mark, first, true)
end

-- Tells the processes that have left these marks at a name that it has changed. The message is the name,
-- or begins with one of the same key. Without the permission to publish, they poll.
local function tell(name, marks, message)
  local channel = string.match(name, '^bw:[^:]+:') .. 'waiter:'
  for mark in string.gmatch(marks, string.rep('%x', mark_length)) do
    redis.pcall('PUBLISH', channel .. mark, message or name)
  end
end

-- The server's time, in us.
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
