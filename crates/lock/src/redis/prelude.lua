-- prelude: the functions of the scripts of the locks. It follows the prelude of all scripts.

-- A string, read without subscribing the caller to its next change: GETEX counts as a write, which
-- client tracking does not register. False if nothing is there.
local function peek(name)
  return read('GETEX', name)
end

-- Subscribes the caller to the next change of a name, even if nothing is there.
local function watch(name)
  read('GET', name)
end

-- Whether a name exists, with a value of any type. It does not subscribe: a command that only reads makes
-- the server track the name, and a name that never changes would be tracked for ever.
local function is_there(name)
  return peek(name) and true or false
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
  if is_lock(held) and adds_mark(held, lock_length + 1, mark) then
    redis.pcall('SET', name, held .. mark, 'KEEPTTL')
  end
end

-- The fence of a lock and when it was renewed; -1 if a lock of another kind has the name.
local function holder(held)
  if not is_lock(held) then return -1, 0 end
  return fence_at(held, 17), fence_at(held, 25)
end

-- A fence above all that were given before: the time in us, or one more than the last one, if the clock
-- stands still or was put back. So fences grow when the counter is lost or an older one comes back,
-- because the clock has grown by more. `last` is what the counter was, or nil to read it. The counter is
-- kept for a day and the hour in which its life is not set again.
local function next_fence(counter, now, last)
  if type(last) ~= 'string' then last = peek(counter) end
  local fence = math.max(now, (last and #last == 8 and fence_at(last, 1) or 0) + 1)
  redis.call('SET', counter, struct.pack('>I8', fence), 'PX', '90000000')
  return fence
end
