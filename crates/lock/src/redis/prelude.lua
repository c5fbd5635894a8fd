-- prelude: the functions of the scripts of the locks. It follows the prelude of all scripts.

-- Whether a name exists, with a value of any type. It does not subscribe: a command that only reads makes
-- the server track the name, and a name that never changes would be tracked for ever.
local function is_there(name)
  return peek(name) and true or false
end

-- Whether an error of INCR says that there is no number that can be counted.
local function is_damaged(said)
  for _, words in ipairs({'WRONGTYPE', 'not an integer', 'overflow'}) do
    if string.find(said, words, 1, true) then return true end
  end
  return false
end

-- The length of a lock that is held: token, 16 bytes, fence, 8, and when it was renewed in ms, 8. The
-- marks of the processes that wait for it follow, if the server does not report changes to them.
local lock_length = 32

local function write(name, token, fence, now, lease, marks)
  local renewed = math.floor(now / 1000)
  redis.call('SET', name, token .. struct.pack('>I8I8', fence, renewed) .. marks, 'PX', lease)
end

local function is_of(held, token)
  return held and string.sub(held, 1, 16) == token
end

-- Whether a value is a lock, and not one of another kind.
local function is_lock(held)
  return held and #held >= lock_length and has_marks(held, lock_length + 1)
end

local function marks_of(held)
  return is_lock(held) and string.sub(held, lock_length + 1) or ''
end

-- Adds the mark of a process to a lock, if there is one. A full server refuses, and then the process polls.
local function leave_mark(name, held, mark)
  if is_lock(held) and add_mark(marks_of(held), mark) then
    redis.pcall('SET', name, held .. mark, 'KEEPTTL')
  end
end

-- The fence of a lock and when it was renewed; -1 if a lock of another kind has the name.
local function holder(held)
  if not is_lock(held) then return -1, 0 end
  return fence_at(held, 17), fence_at(held, 25)
end

-- How long a counter of fences is kept, in ms.
local fence_life = 90000000

-- A fence above all that were given before. The counter starts with the server's time in microseconds,
-- and grows by one per grant. So fences grow when the counter is lost, because the clock has grown by
-- more; and when the clock is put back, because the counter remains.
local function next_fence(counter)
  local fence = redis.pcall('INCR', counter)
  local is_number = type(fence) == 'number'
  if not is_number and not is_damaged(fence.err) then error(fence.err) end
  if is_number and fence >= 1e12 and fence < 9007199254740992 then
    redis.call('PEXPIRE', counter, fence_life)
    return fence
  end
  fence = server_time()
  redis.call('SET', counter, string.format('%.0f', fence), 'PX', fence_life)
  return fence
end
