-- The option `concurrency` of tools: so many calls of the tool run at once in the process. The others wait in the order in
-- which they came, for as long as they have time.

local failure = require "moonpool.failure"
local host = require "moonpool.host"

local turns = {}

--- The handler of tool `name`, of which `most` run at once.
function turns.limit(name, handler, most)
  local gate = "tool:" .. name
  return function(...)
    local mine <close> = host.turn(gate, most) or failure.fail "the tool is busy: too many calls of it wait already"     -- luacheck: ignore 211
    return handler(...)
  end
end

return turns
