-- prelude: what stands before every other script.

-- What is read by a command, or false if that is no string. A server that refuses the command is
-- not taken for one that has nothing.
local function read(command, ...)
  local value = redis.pcall(command, ...)
  if type(value) ~= 'table' then return value end
  if string.find(value.err, 'WRONGTYPE', 1, true) then return false end
  error(value.err)
end

-- The same without being told of the next change: GETEX counts as a write, and a server remembers
-- for whom it has read. What nobody waits for it should not remember.
local function peek(name)
  return read('GETEX', name)
end

-- Whether bytes are an entry that can be read here.
local function readable(entry)
  return entry and #entry >= 88 and string.sub(entry, 1, 4) == 'BWE\1'
end

-- How long an entry stays after having been fresh.
local function stale_window(entry)
  local revalidated, on_error, validated = struct.unpack('>I8I8I8', entry, 53)
  return math.max(revalidated, on_error, validated)
end

-- To be told of the next change of a name.
local function watch(name)
  read('GET', name)
end

-- Eight bytes as a number, and anything else as zero.
local function number(bytes)
  return bytes and #bytes == 8 and (struct.unpack('>I8', bytes)) or 0
end
