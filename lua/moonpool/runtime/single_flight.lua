-- One shared run of a function for all tasks that need its result at that time. It runs in a task of its own, so the
-- cancel of a waiting task does not cancel it.

local host = require "moonpool.host"

local flight = {}
flight.__index = flight

--- `begin`: host.job.begin_own if few keys are under way at once, whatever clients do; else host.job.begin.
function flight.new(begin) return setmetatable({ under_way = {}, begin = begin or host.job.begin }, flight) end

local function land(self, key, it)
  if self.under_way[key] == it then self.under_way[key] = nil end
  it.signal:set()
end

--- Returns the result of f(), which may take `seconds`. Calls with an equal key that arrive meanwhile wait for this run
--- and get its result.
--- nil, why if f failed or ran out of time.
function flight:share(key, seconds, f)
  local it = self.under_way[key]
  if not it then
    it = { signal = host.task.event() }
    self.under_way[key] = it
    local begun, why = self.begin(function()
      local _ <close> = setmetatable({}, { __close = function() land(self, key, it) end })
      it.outcome = table.pack(f())
    end, seconds)
    if not begun then
      it.outcome = { n = 2, nil, why }
      land(self, key, it)
    end
  end
  if not it.signal:wait(seconds) then land(self, key, it) end
  if it.outcome then return table.unpack(it.outcome, 1, it.outcome.n) end
  return nil, "the operation did not end in time"
end

return flight
