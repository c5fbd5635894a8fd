-- prelude: what stands before the scripts of the fair lock, after that of all locks.
--
-- A queue is a sorted set of tokens by the time of their arrival in us. Beside it is one of the
-- same tokens by when they are taken to be dead if nothing more is heard of them, in ms.

local function seen(queue)
  return queue .. ':seen'
end

local function leave(queue, token)
  redis.call('ZREM', seen(queue), token)
  return redis.call('ZREM', queue, token)
end

-- Who is not heard of any more leaves. All at once, so that the dead do not delay one another.
local function drop_silent(queue, now)
  local silent = redis.call('ZRANGEBYSCORE', seen(queue), '-inf', string.format('%.0f', now))
  for _, token in ipairs(silent) do leave(queue, token) end
  return #silent
end

local function first(queue)
  return redis.call('ZRANGE', queue, 0, 0)[1]
end

-- What a waiter is told by: a name that is its own, and that never stays.
local function call_name(lock, token)
  return lock .. ':call:' .. token
end

-- Tells whose turn it is, and nobody else.
local function call_first(lock, queue)
  local token = first(queue)
  if token then
    redis.call('SET', call_name(lock, token), '', 'PX', 1000)
    redis.call('DEL', call_name(lock, token))
  end
end

-- Takes a place at the end, or shows that who has one is there.
local function wait(queue, token, clock_us, silence)
  if not redis.call('ZSCORE', queue, token) then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    local at = math.max(clock_us, last + 1)
    redis.call('ZADD', queue, string.format('%.0f', at), token)
  end
  local dead_at = math.floor(clock_us / 1000) + silence
  redis.call('ZADD', seen(queue), string.format('%.0f', dead_at), token)
  for _, name in ipairs({queue, seen(queue)}) do
    redis.call('PEXPIRE', name, math.max(silence, redis.call('PTTL', name)))
  end
end
