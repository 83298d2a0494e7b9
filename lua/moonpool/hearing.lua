-- What the workers of this process tell each other by host.tell: who listens to what. Runs before the tasks of a turn, and may
-- not wait.

local hearing = {}

local handlers = {}

--- `f(text)` runs for what is told under `topic`; there is one for each.
function hearing.on(topic, f)
  assert(not handlers[topic], "somebody listens already")
  handlers[topic] = f
end

--- Something was told.
function hearing.heard(topic, text)
  local f = handlers[topic]
  if f then f(text) end
end

return hearing
