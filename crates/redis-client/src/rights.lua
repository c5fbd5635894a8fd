-- rights: whether this user may run the commands of other scripts. It leaves nothing behind.
--
-- KEYS   1 a name of ours that is not used   2 another one, in another slot, unless it is a cluster
-- ARGV   1 the commands, in lower case, with spaces between them
-- gives  for each command that is refused, a line: its name and the error of the server
--
-- One script, because the commands of a script are refused with other errors than those of a
-- client, and because the caller wants to know all missing permissions at once.
local name = KEYS[1]
local function try(...)
  local reply = redis.pcall(...)
  local said = type(reply) == 'table' and reply.err
  -- It was permitted, and found a value of another type.
  return said and not string.find(said, 'WRONGTYPE', 1, true) and said
end
local rests = {
  del = {}, get = {}, getex = {}, hgetall = {}, incr = {}, pttl = {}, zcard = {},
  hdel = {''}, zrank = {''}, zrem = {''}, zscore = {''}, pexpire = {1000}, setrange = {0, ''},
  hset = {'', ''}, publish = {''}, zadd = {0, ''}, zrange = {0, 0}, zrangebyscore = {0, 0},
}
-- These would make a name that lives for ever, if there were none.
local makes = {hset = true, incr = true, zadd = true}
local refused = {set = try('SET', name, '0', 'PX', 1000)}
for command in string.gmatch(ARGV[1], '%S+') do
  if command == 'time' then
    refused.time = try('TIME')
  elseif command ~= 'set' and command ~= 'del' and not (makes[command] and refused.set) then
    refused[command] = try(command, name, unpack(rests[command]))
  end
end
refused.del = try('DEL', name)
if KEYS[2] then
  -- Redis before 7.2 tracks it until it changes, because it is declared.
  try('SET', KEYS[2], '', 'PX', 1000)
  try('DEL', KEYS[2])
end
local gives = {}
for command in string.gmatch(ARGV[1], '%S+') do
  if refused[command] then gives[#gives + 1] = command .. ' ' .. refused[command] end
end
return table.concat(gives, '\n')
