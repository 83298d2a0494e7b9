-- Messages between the workers of this process, which host.bus.broadcast sends: the handler of each topic. Handlers run before the tasks of a
-- turn and must not wait.

local bus = {}

local handlers = {}

--- Sets the handler f(text) of a topic. A topic has one handler.
function bus.on(topic, f)
  assert(not handlers[topic], "the topic has a handler already")
  handlers[topic] = f
end

--- Runs the handler of a message that arrived. A message without a handler is ignored.
function bus.deliver(topic, text)
  local f = handlers[topic]
  if f then f(text) end
end

return bus
