-- The option `concurrency` of tools: the number of calls of a tool that run at once in the gateway. Further calls wait
-- in the order of their arrival, until their time limit.

local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"

local turns = {}

--- Wraps the handler of the tool `name` so that at most `most` calls of it run at once.
function turns.limit(name, handler, most)
  local key = "tool:" .. name
  return function(...)
    local mine <close> = host.semaphore.take(key, most, true) or failure.fail "the tool is busy: too many calls of it wait already"     -- luacheck: ignore 211
    return handler(...)
  end
end

return turns
