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

-- The fence that stands at a place. Zero, if it is none that was ever given: beyond 2^53 nothing can
-- be counted here, and what is damaged must not keep its key from being replaced.
local function fence_at(bytes, place)
  local fence = struct.unpack('>I8', bytes, place)
  return fence >= 0 and fence < 9007199254740992 and fence or 0
end

-- Eight bytes as a fence, and anything else as zero.
local function number(bytes)
  return bytes and #bytes == 8 and fence_at(bytes, 1) or 0
end
