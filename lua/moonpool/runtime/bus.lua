-- Messages between the workers of this process, which host.bus.broadcast sends: the handlers of each topic. Handlers run before the tasks of a
-- turn and must not wait. The topic "missed": messages to this VM did not fit its queue, and what they say has to be found in another way.

local bus = {}

local handlers = {}        -- topic -> its handlers, in the order in which they were added

--- Adds a handler f(text) of a topic.
function bus.on(topic, f)
  handlers[topic] = handlers[topic] or {}
  table.insert(handlers[topic], f)
end

--- Runs the handlers of a message that arrived. A message without a handler is ignored.
function bus.deliver(topic, text)
  for _, f in ipairs(handlers[topic] or {}) do f(text) end
end

return bus
