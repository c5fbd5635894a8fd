-- Ends a thread of wrk once it has got one response per connection.
--
-- The argument after `--` is the number of its connections.
local left

function init(arguments)
    left = tonumber(arguments[1])
end

function response()
    left = left - 1
    if left == 0 then
        wrk.thread:stop()
    end
end
