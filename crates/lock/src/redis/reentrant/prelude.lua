-- prelude: the functions of the scripts of the reentrant lock. It follows the prelude of all locks.

-- A number as digits, for a hash field: Lua would round a large one.
local function digits(number)
  return string.format('%.0f', number)
end

-- The holds of the lock. It is a hash with the fields owner, fence and renewed, and one field per hold:
-- its token, with the end of its lease in ms. Holds whose lease has ended do not count. A field `marks`
-- has the marks of the processes that wait, if the server does not report changes to them.
local function holds(name, now)
  local found = {ends = {}, count = 0, latest = 0, lapsed = {}, marks = ''}
  -- A missing name may never change, and would be tracked for ever.
  if not is_there(name) then return found end
  local fields = read('HGETALL', name)
  if fields == '' then
    found.is_foreign = true
    return found
  end
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if #field ~= 16 then
      found[field] = value
    elseif (tonumber(value) or 0) > now then
      found.ends[field] = tonumber(value)
      found.count = found.count + 1
    else
      found.lapsed[#found.lapsed + 1] = field
    end
  end
  return found
end

-- The lock lives as long as the last of its holds.
local function expire(name, ends, now)
  local latest = 0
  for _, at in pairs(ends) do latest = math.max(latest, at) end
  redis.call('PEXPIRE', name, digits(latest - now))
end

-- Adds a hold, or starts its lease again.
local function keep(name, found, token, now, lease)
  found.ends[token] = now + lease
  -- PEXPIRE comes first, too: a server without free memory refuses a script whose first write adds data,
  -- and a renewal has to succeed.
  expire(name, found.ends, now)
  redis.call('HSET', name, token, digits(now + lease), 'renewed', digits(now))
  expire(name, found.ends, now)
end
