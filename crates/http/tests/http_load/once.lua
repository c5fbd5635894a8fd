-- Ends a thread of wrk when it has had as many responses as it has connections.
--
-- It is given as `--` argument: how many that is.
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
