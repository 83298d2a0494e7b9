-- notified: the notifications that scripts sent to clients during a spec: progress, log messages, changed lists,
-- updated resources.

local host = require "moonpool.host"
local json = require "moonpool.json"
local principal = require "moonpool.access.principal"

local notified = {}

local messages, is_on = {}, false

local function note(method, params)
  if is_on then messages[#messages + 1] = { method = method, params = params } end
end

--- Starts to record the notifications that scripts send. Call it after all modules are loaded.
function notified.watch()
  local methods = host.call.methods
  local progress, send, publish, audiences = methods.progress, methods.send, host.topic.publish, host.topic.audiences

  function methods.progress(call, done, total, message)
    progress(call, done, total, message)
    note("notifications/progress", { progress = done, total = total, message = message })
  end

  function methods.send(call, message, ...)
    if type(message) == "table" and message.id == nil then note(message.method, message.params and json.decode(json.encode(message.params))) end
    return send(call, message, ...)
  end

  function host.topic.publish(topic, plain, ...)
    local message = is_on and json.decode(plain)
    if type(message) == "table" then note(message.method, message.params) end
    return publish(topic, plain, ...)
  end

  -- During a spec a subscriber with all scopes is subscribed to all topics.
  function host.topic.audiences(base)
    if is_on then return { principal.pack(principal.lone) } end
    return audiences(base)
  end
end

--- Empties the list at the beginning of a spec, or stops recording at its end.
function notified.begin(on) messages, is_on = {}, on end

--- The notifications of the spec so far, each { method, params }. With a method, only those of this method;
--- "notifications/" may be left out.
function notified.list(method)
  local found = {}
  for _, message in ipairs(messages) do
    if method == nil or message.method == method or message.method == "notifications/" .. method then found[#found + 1] = message end
  end
  return found
end

return notified
