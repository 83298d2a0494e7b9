-- resources/subscribe and /unsubscribe (R-3), and subscriptions/listen (B-1 to B-7).

local host = require "moonpool.host"
local access = require "moonpool.access.access"
local call_library = require "moonpool.protocol.call"
local content = require "moonpool.things.tool_result"
local errors = require "moonpool.runtime.rpc_error"
local lazy = require "moonpool.runtime.lazy"
local federated = lazy "moonpool.federation.federated"
local notifications = lazy "moonpool.federation.notifications"
local json = require "moonpool.json"
local registry = require "moonpool.registry.registry"
local subscriptions = require "moonpool.registry.subscriptions"
local task_record = require "moonpool.tasks.task_record"
local tasks = require "moonpool.tasks.tasks"
local upstreams = require "moonpool.upstream.config"
local uris = require "moonpool.runtime.uris"

local methods = {}

local EVENT_FRAME = 80       -- limit of the bytes that an event adds to its message
local MAX_NAMES = 1024       -- limit of the URIs, and of the ids of tasks, in one request of subscriptions/listen

local NO_ROOM = "the URIs of all subscriptions, or those of yours, take too much memory: unsubscribe from some, or try again later"

-- -- subscribing to a resource ----------------------------------------------------------------------------------------

-- The normalized URI of a resource that the caller may read, nil, and the resource; or nil and an error.
local function uri_of(call, params, era)
  if not registry.offers "resources" then return nil, errors.new("unknown_method", "this server has no resources") end
  local uri = params.uri
  if type(uri) ~= "string" then return nil, errors.new("invalid_params", "params.uri must be a string") end
  local normal = uris.normal(uri)
  local resource, forbidden = registry.open(call, normal)
  if resource and not resource.is_linked then return normal, nil, resource end
  return nil, forbidden or errors.new(era.resource_not_found, "resource not found", { uri = uri })
end

-- Subscribes to a topic: {}; or nil and an error.
local function subscribe(call, topic, params, resource)
  local subscribed, why = host.session.subscribe(call, access.topic(topic, call.principal), true)
  if subscribed then
    if not resource.upstream then return {} end
    local told, refusal = notifications.subscribe(call, { [params.uri] = resource })
    if told[params.uri] then return {} end
    host.session.unsubscribe(call, topic)
    return nil, refusal
  end
  return nil, errors.new("internal", why == "too many" and "the session has too many subscriptions: unsubscribe from one first"
    or why == "no room" and NO_ROOM or why)
end

methods["resources/subscribe"] = function(call, params, era)
  local uri, err, resource = uri_of(call, params, era)
  if not uri then return nil, err end
  if not resource.upstream then return subscribe(call, subscriptions.resource_topic(uri), params, resource) end
  local topic = notifications.topic(call, uri, resource)
  local result, refusal = subscribe(call, topic, params, resource)
  -- the first request of a client can show that the upstream opens no session for it: then another channel brings its
  -- notifications
  local now = not result and notifications.topic(call, uri, resource) or topic
  if now == topic then return result, refusal end
  return subscribe(call, now, params, resource)
end

methods["resources/unsubscribe"] = function(call, params, era)
  local uri, err, resource = uri_of(call, params, era)
  if not uri and (type(params.uri) ~= "string" or not registry.offers "resources") then return nil, err end
  -- also where the resource was removed, or is hidden from the client now
  local normal = uris.normal(params.uri)
  host.session.unsubscribe(call, subscriptions.resource_topic(normal))
  for _, key in ipairs(upstreams.has_any and notifications.own_keys(call) or {}) do
    host.session.unsubscribe(call, subscriptions.resource_topic(normal, key))
  end
  if uri and resource.upstream then notifications.unsubscribed(call, params.uri, resource) end
  return {}
end

-- -- subscriptions/listen ---------------------------------------------------------------------------------------------

local function is_list_of_text(value)
  if type(value) ~= "table" or #value > MAX_NAMES then return false end
  local count = 0
  for _, item in pairs(value) do
    if type(item) ~= "string" then return false end
    count = count + 1
  end
  return count == #value
end

-- The error for an invalid filter, or nil.
local function complaint(filter)
  if type(filter) ~= "table" or debug.getmetatable(filter) == json.array_mt then return "params.notifications must be an object" end
  for _, name in ipairs { "toolsListChanged", "promptsListChanged", "resourcesListChanged" } do
    if filter[name] ~= nil and type(filter[name]) ~= "boolean" then return "params.notifications." .. name .. " must be true or false" end
  end
  for _, name in ipairs { "resourceSubscriptions", "taskIds" } do
    if filter[name] ~= nil and not is_list_of_text(filter[name]) then
      return "params.notifications." .. name .. " must be a list of at most " .. MAX_NAMES .. " strings"
    end
  end
end

-- The items of `asked` that pass, without repetitions; nil if there are none. Adds the topic of each to `topics`.
local function honoured(asked, topics, topic_of)
  local list, seen = json.array {}, {}
  for _, item in ipairs(asked or {}) do
    local topic = not seen[item] and topic_of(item)
    if topic then
      seen[item] = true
      list[#list + 1], topics[#topics + 1] = item, topic
    end
  end
  return list[1] and list or nil
end

-- The URIs whose changes the client can be notified of, each with its topic.
local function followable_of(call, asked)
  local set, of_upstreams = {}, {}
  for _, uri in ipairs(asked) do
    local resource = set[uri] == nil and of_upstreams[uri] == nil and registry.open(call, uris.normal(uri))
    if resource and not resource.is_linked then
      if resource.upstream then of_upstreams[uri] = resource else set[uri] = subscriptions.resource_topic(uris.normal(uri)) end
    end
  end
  if next(of_upstreams) == nil then return set end
  for uri in pairs(notifications.subscribe(call, of_upstreams)) do set[uri] = notifications.topic(call, uris.normal(uri), of_upstreams[uri]) end
  return set
end

methods["subscriptions/listen"] = function(call, params)
  local filter = params.notifications
  local wrong = complaint(filter)
  if wrong then return nil, errors.new("invalid_params", wrong) end
  if filter.taskIds and not call_library.able(call, task_record.needs) then return nil, task_record.undeclared() end

  local accepted, topics = {}, {}
  for _, kind in ipairs { "tools", "prompts", "resources" } do
    local name = kind .. "ListChanged"
    if filter[name] and registry.offers(kind) then
      accepted[name], topics[#topics + 1] = true, access.topic(kind, call.principal)
      if upstreams.has_any then
        local own = subscriptions.own_topics(kind, notifications.own_keys(call))
        table.move(own, 1, #own, #topics + 1, topics)
      end
    end
  end
  if filter.resourceSubscriptions and upstreams.has_any then federated.keep_up() end       -- with the lists that another worker has read
  local followable = followable_of(call, filter.resourceSubscriptions or {})
  accepted.resourceSubscriptions = honoured(filter.resourceSubscriptions, topics, function(uri)
    return followable[uri] and access.topic(followable[uri], call.principal)
  end)
  accepted.taskIds = honoured(filter.taskIds, topics, function(id)
    local record = task_record.find(call, id)
    return record and tasks.topic(record)
  end)

  local tag = { [subscriptions.key] = json.raw(host.call.id(call)) }
  local acknowledged = {
    jsonrpc = "2.0", method = "notifications/subscriptions/acknowledged", params = { notifications = json.object(accepted), _meta = tag },
  }
  local text = json.encode(acknowledged)
  local size = #text
  if size > host.limits.stream_queue - EVENT_FRAME then        -- a larger acknowledgement would overfill the stream's queue and end the stream
    return nil, errors.new("invalid_params", ("the list of your subscriptions is %d bytes of JSON, more than a stream takes: "
      .. "subscribe to fewer in one request"):format(size))
  end
  -- the result that the client gets when the gateway ends the subscription (B-6)
  local closing = { resultType = "complete", _meta = content.meta_with(subscriptions.key, tag[subscriptions.key]) }
  local listened, why = host.call.listen(call, topics, json.encode(closing), text)
  if listened then return closing end     -- sent when the gateway ends the subscription
  return nil, errors.new("internal",
    why == "too many" and "too many subscriptions/listen requests, or too many subscriptions in this one: try again later, or with fewer"
    or why == "no room" and NO_ROOM or why)
end

return methods
