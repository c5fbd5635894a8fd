-- prelude: the functions of the scripts of the fair lock. It follows the prelude of all locks.
--
-- A queue is a sorted set of tokens, ordered by their arrival in us. A second sorted set has the same
-- tokens, ordered by the time in ms at which a silent waiter counts as dead.
--
-- Commands that only read are used on names that exist. The names are deleted with the last waiter, so
-- the server tracks no name of a lock without waiters.

-- Changes the name that only one waiter watches, and deletes it. That tells the waiter, and ends the
-- tracking of the name. Returns the mark that the waiter has left there, if it has.
--
-- It is the one name that is not among the KEYS, because only the queue knows the waiter. It is in the
-- slot of the others. If the server refuses it, the waiter finds out with its next request.
local function touch(lock, token)
  local name = lock .. ':call:' .. token
  local mark = redis.pcall('SET', name, '', 'PX', 1000, 'GET')
  redis.pcall('DEL', name)
  return type(mark) == 'string' and mark or ''
end

-- Tells one waiter that it is its turn.
local function call(lock, token)
  tell(lock, touch(lock, token))
end

-- Removes a waiter from the queue, if it is there. The change of its name ends the tracking.
local function leave(lock, queue, seen, token)
  if redis.call('ZREM', queue, token) == 0 then return end
  redis.call('ZREM', seen, token)
  touch(lock, token)
end

local function first(queue)
  return is_there(queue) and redis.call('ZRANGE', queue, 0, 0)[1]
end

-- Removes the waiters that count as dead. It removes all at once, so that they do not add their delays.
local function drop_silent(lock, queue, seen, now)
  if not is_there(queue) then return 0 end
  local silent = redis.call('ZRANGEBYSCORE', seen, '-inf', string.format('%.0f', now))
  for _, token in ipairs(silent) do leave(lock, queue, seen, token) end
  return #silent
end

-- Adds a waiter to the end of the queue, or notes that one in the queue is alive.
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
