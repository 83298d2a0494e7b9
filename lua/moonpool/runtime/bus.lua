-- Messages between the workers of this process, which host.bus.broadcast sends: the handlers of each topic. Handlers
-- run before the tasks of a turn and must not wait. The topic "missed": messages to this VM did not fit its queue, and
-- what they say has to be found in another way.
-- After an upgrade a gateway may consist of several processes: host.bus.relay sends a message to one VM of each other
-- one.

local host = require "moonpool.host"

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

--- Sends a message to every VM of all processes.
function bus.everywhere(topic, text)
  host.bus.relay("everywhere", topic .. "\0" .. text)
  return host.bus.broadcast(topic, text)
end

-- A VM of another process has sent this to all.
bus.on("everywhere", function(both) host.bus.broadcast(both:match "^(%Z*)%z(.*)$") end)

-- Messages of another process were lost on the way: every VM of this process reads the store again.
bus.on("lost elsewhere", function() host.bus.broadcast("missed", "") end)

return bus
