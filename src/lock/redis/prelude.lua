-- prelude: what stands before every other script of the locks.

-- What is read by a command, or '' if it is of another type: that is somebody else's, whoever that
-- is. A server that refuses the command is not taken for one that has nothing.
local function read(command, ...)
  local value = redis.pcall(command, ...)
  if type(value) ~= 'table' or not value.err then return value end
  if string.find(value.err, 'WRONGTYPE', 1, true) then return '' end
  error(value.err)
end

-- A string without being told of its next change: GETEX counts as a write, and a server remembers
-- for whom it has read. What nobody waits for it should not remember.
local function peek(name)
  return read('GETEX', name)
end

-- To be told of the next change of a name, even if nothing is there.
local function watch(name)
  read('GET', name)
end

-- Eight bytes as a number, and anything else as zero: also what is too large to be counted here.
local function number(bytes)
  local read = bytes and #bytes == 8 and struct.unpack('>I8', bytes)
  return read and read >= 0 and read < 9007199254740992 and read or 0
end

-- The server's clock in microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- A lock that is held: token, 16 bytes, fence, 8, and when it was renewed in ms, 8.
local function write(name, token, fence, now, lease)
  local renewed = math.floor(now / 1000)
  redis.call('SET', name, token .. struct.pack('>I8I8', fence, renewed), 'PX', lease)
end

local function is_of(held, token)
  return held and string.sub(held, 1, 16) == token
end

-- Its fence and when it was renewed; -1 if it is not one of ours.
local function holder(held)
  if #held ~= 32 then return -1, 0 end
  return number(string.sub(held, 17, 24)), number(string.sub(held, 25, 32))
end

-- A fence above all that were given since the mark was set first: the clock may have been put back.
local function next_fence(mark, life, now)
  local fence = math.max(number(peek(mark)) + 1, now)
  redis.call('SET', mark, struct.pack('>I8', fence), 'PX', life)
  return fence
end

-- Remembers for a moment that this release has freed the lock: if its answer is lost with the
-- connection, it is asked again over another one, and has to answer the same.
local function note_freed(name, release, life)
  redis.call('SET', name .. ':freed:' .. release, '', 'PX', life)
end

local function was_freed(name, release)
  return peek(name .. ':freed:' .. release) and 1 or 0
end
