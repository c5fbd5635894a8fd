-- prelude: what stands before the scripts of the locks, after that of all scripts.

-- Whether there is anything of a name, of whatever type, without having its changes told. Commands that
-- only read have the server track the name, and one that never changes is tracked for ever.
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
  return fence_at(held, 17), fence_at(held, 25)
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
  fence = server_time()
  redis.call('SET', mark, string.format('%.0f', fence), 'PX', life)
  return fence
end
