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

-- Whether there is anything of a name, of whatever type, without having its changes told. Commands that
-- only read have the server track the name, and one that never changes is tracked for ever.
local function is_there(name)
  return peek(name) and true or false
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

-- Whether an error of INCR says that there is no number that can be counted.
local function is_damaged(said)
  for _, words in ipairs({'WRONGTYPE', 'not an integer', 'overflow'}) do
    if string.find(said, words, 1, true) then return true end
  end
  return false
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

-- A fence above all that were given before. The mark counts up from the server's clock, in
-- microseconds, at the moment when it was set first. So fences grow when the mark is lost, as the
-- clock has gone on by more than was counted, and when the clock is put back, as the mark is there.
local function next_fence(mark, life)
  local fence = redis.pcall('INCR', mark)
  local is_number = type(fence) == 'number'
  if not is_number and not is_damaged(fence.err) then error(fence.err) end
  if is_number and fence >= 1e12 and fence < 9007199254740992 then
    redis.call('PEXPIRE', mark, life)
    return fence
  end
  fence = clock()
  redis.call('SET', mark, string.format('%.0f', fence), 'PX', life)
  return fence
end
