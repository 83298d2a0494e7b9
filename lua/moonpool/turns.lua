-- The option `concurrency` of tools: so many calls of the tool run at once in one worker. The others wait in the order in which
-- they came, for as long as they have time.

local host = require "moonpool.host"

local turns = {}

local turn = {}
turn.__index = turn

-- However the call ends: its turn goes to who waits longest; or it waits no more.
function turn:__close()
  local place = self.place
  if not self.is_on then
    for i, other in ipairs(place.waiting) do
      if other == self then
        table.remove(place.waiting, i)
        break
      end
    end
    return
  end
  local next_one = table.remove(place.waiting, 1)
  if not next_one then
    place.free = place.free + 1
    return
  end
  next_one.is_on = true
  next_one.signal:set()
end

local function join(place)
  if place.free > 0 then
    place.free = place.free - 1
    return setmetatable({ place = place, is_on = true }, turn)
  end
  local self = setmetatable({ place = place, is_on = false, signal = host.signal() }, turn)
  place.waiting[#place.waiting + 1] = self
  return self
end

--- `handler`, of which `most` run at once.
function turns.limit(handler, most)
  local place = { free = most, waiting = {} }
  return function(...)
    local mine <close> = join(place)
    if not mine.is_on then mine.signal:wait() end
    return handler(...)
  end
end

return turns
