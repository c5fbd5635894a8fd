-- prelude: what stands before the scripts of the fair lock, after that of all locks.
--
-- A queue is a sorted set of tokens by the time of their arrival in us. Beside it is one of the
-- same tokens by when they are taken to be dead if nothing more is heard of them, in ms.
--
-- What is read here by commands that only read is there, and goes when the last waiter leaves, so
-- the server tracks no name of a lock that has no waiters.

-- Tells one waiter, by a name that is its own and that never stays. It ends the tracking of that
-- name. This is the one name that is not among the KEYS: whose turn it is stands in the queue. It is
-- in the slot of the others. A server that refuses it has the waiter told by its next question.
local function call(lock, token)
  local name = lock .. ':call:' .. token
  redis.pcall('SET', name, '', 'PX', 1000)
  redis.pcall('DEL', name)
end

-- Takes a waiter out of the queue, if it is there. Its name is called once more, so that it is not
-- tracked any longer.
local function leave(lock, queue, seen, token)
  if redis.call('ZREM', queue, token) == 0 then return end
  redis.call('ZREM', seen, token)
  call(lock, token)
end

local function first(queue)
  return is_there(queue) and redis.call('ZRANGE', queue, 0, 0)[1]
end

-- Takes out the waiters that are not heard of any more. All at once, so that the dead do not delay one
-- another.
local function drop_silent(lock, queue, seen, now)
  if not is_there(queue) then return 0 end
  local silent = redis.call('ZRANGEBYSCORE', seen, '-inf', string.format('%.0f', now))
  for _, token in ipairs(silent) do leave(lock, queue, seen, token) end
  return #silent
end

-- Takes a place at the end, or shows that a waiter that has one is there.
local function wait(queue, seen, token, clock_us, silence)
  if not redis.call('ZSCORE', queue, token) then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    local at = math.max(clock_us, last + 1)
    redis.call('ZADD', queue, string.format('%.0f', at), token)
  end
  local dead_at = math.floor(clock_us / 1000) + silence
  redis.call('ZADD', seen, string.format('%.0f', dead_at), token)
  for _, name in ipairs({queue, seen}) do
    redis.call('PEXPIRE', name, math.max(silence, redis.call('PTTL', name)))
  end
end
