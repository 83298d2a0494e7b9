-- Notifies subscribed clients of changes: sessions that subscribed, and requests of subscriptions/listen (stateless
-- revisions), whose notifications carry the id of the request.
-- Topics: "tools", "prompts", "resources" (the lists) and "resource:" .. uri, each followed by the audience
-- (access.topic); "task:" .. id.

local host = require "moonpool.host"
local access = require "moonpool.access.access"
local bus = require "moonpool.runtime.bus"
local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"
local uris = require "moonpool.runtime.uris"

local subscriptions = {}

subscriptions.key = "io.modelcontextprotocol/subscriptionId"

--- A notification for requests of subscriptions/listen, in two halves: the id of each request goes between them (B-3).
--- `params` has no `_meta`.
function subscriptions.halves(method, params)
  local fields = params and json.encode(params):sub(2, -2) .. "," or ""
  return '{"jsonrpc":"2.0","method":"' .. method .. '","params":{' .. fields .. '"_meta":{"' .. subscriptions.key .. '":', "}}}"
end

--- A notification for sessions, as JSON.
function subscriptions.plain(method, params) return json.encode { jsonrpc = "2.0", method = method, params = params } end

local function publisher(method, params)
  local plain = subscriptions.plain(method, params)
  local before, after = subscriptions.halves(method, params)
  return function(topic) host.topic.publish(topic, plain, before, after) end
end

local function list_changed(kind) return publisher("notifications/" .. kind .. "/list_changed") end

--- Notifies of a thing that was switched on or off, in the list "tools", "prompts" or "resources".
function subscriptions.switched(kind, thing) access.notify(kind, thing, list_changed(kind)) end

--- Notifies of changed entries of a list: { was =, is =, is_other = } for each.
function subscriptions.list_changed(kind, changes) access.notify_changes(kind, changes, list_changed(kind)) end

local function own_topic(kind, key) return "own " .. kind .. ":" .. key end

--- The topics of changes of the lists "tools", "prompts" and "resources" that are seen by the clients of single
--- channels of upstreams alone: the channels with these keys.
function subscriptions.own_topics(kind, keys)
  local topics = {}
  for i, key in ipairs(keys) do topics[i] = own_topic(kind, key) end
  return topics
end

--- Notifies the clients of the channel of an upstream with this key that a list has changed for them.
function subscriptions.own_list_changed(kind, key) list_changed(kind)(own_topic(kind, key)) end

--- Notifies all subscribers of the list `only`, or of all lists, that it may have changed for them: which of them see the
--- change is not known.
function subscriptions.list_may_have_changed(only)
  for _, kind in ipairs { "tools", "prompts", "resources" } do
    if not only or only == kind then access.notify_changes(kind, { { is = {}, is_other = true } }, list_changed(kind)) end
  end
end

--- As list_changed, for changes that a reload has made: clients of other nodes of a cluster are notified, too.
function subscriptions.reloaded(kind, changes)
  subscriptions.list_changed(kind, changes)
  subscriptions.list_changed_at_nodes(kind, changes)
end

--- Notify clients of the other nodes of a cluster. Replaced by cluster/followers.lua.
function subscriptions.list_changed_at_nodes() end
function subscriptions.updated_at_nodes() end

--- The topic, without the audience, of a resource with this normalized URI; `key`: of its changes that the upstream
--- notifies of on the channel with this key, which are those of the channel's clients alone.
function subscriptions.resource_topic(normal, key) return (key and "own resource:" .. key .. ":" or "resource:") .. normal end

--- Notifies the subscribers of a resource, whose normalized URI is `normal`, that its content has changed. `key`: as in
--- subscriptions.resource_topic.
function subscriptions.notify_updated(normal, resource, uri, key)
  access.notify(subscriptions.resource_topic(normal, key), resource, publisher("notifications/resources/updated", { uri = uri }))
end

local function notify_uri(uri)
  local normal = uris.normal(uri)
  local resource = registry.resource(normal)
  if resource then subscriptions.notify_updated(normal, resource, uri) end
end

--- resource_updated(uri): notifies the subscribers of a resource that its content has changed.
function subscriptions.updated(uri)
  if type(uri) ~= "string" then problem.raise(2, "resource_updated takes a URI, got a " .. type(uri)) end
  if not registry.serves(uri) then problem.raise(2, "no resource has the URI '" .. uri:sub(1, 128) .. "'") end
  notify_uri(uri)
  host.bus.relay("resource elsewhere", uri)
  subscriptions.updated_at_nodes(uri)
end

--- A script of another node has updated the resource.
subscriptions.updated_elsewhere = notify_uri

--- The resource may have been updated by a script of another node: upstreams notify each node of theirs.
function subscriptions.may_be_updated(uri)
  local resource = registry.resource(uri)
  if resource and not resource.upstream then subscriptions.notify_updated(uri, resource, uri) end
end

-- A script of another process has updated the resource.
bus.on("resource elsewhere", notify_uri)

return subscriptions
