-- What changes, told to who follows it: sessions by what they subscribed to, listeners (2026-07-28) by what they named, each
-- message then tagged with the listener's request.
-- Topics: "tools", "prompts", "resources" (their lists) and "resource:" .. uri, each with the audience behind it (access.topic);
-- "task:" .. id.

local host = require "moonpool.host"
local access = require "moonpool.access"
local json = require "moonpool.json"
local problem = require "moonpool.problem"
local registry = require "moonpool.registry"
local uris = require "moonpool.uris"

local subscriptions = {}

subscriptions.key = "io.modelcontextprotocol/subscriptionId"

--- A message for listeners in two halves: between them goes the id of the request that listens (B-3). `params` has no `_meta`.
function subscriptions.halves(method, params)
  local fields = params and json.encode(params):sub(2, -2) .. "," or ""
  return '{"jsonrpc":"2.0","method":"' .. method .. '","params":{' .. fields .. '"_meta":{"' .. subscriptions.key .. '":', "}}}"
end

--- The same for sessions.
function subscriptions.plain(method, params) return json.encode { jsonrpc = "2.0", method = method, params = params } end

local function publisher(method, params)
  local plain = subscriptions.plain(method, params)
  local before, after = subscriptions.halves(method, params)
  return function(topic) host.publish(topic, plain, before, after) end
end

local function list_changed(kind) return publisher("notifications/" .. kind .. "/list_changed") end

--- A thing has come into a list, or gone from it: "tools", "prompts", "resources".
function subscriptions.switched(kind, thing) access.tell(kind, thing, list_changed(kind)) end

--- A list has changed: { was =, is =, is_other = } of each entry that did.
function subscriptions.list_changed(kind, changes) access.tell_changes(kind, changes, list_changed(kind)) end

--- resource_updated(uri): what it holds has changed.
function subscriptions.updated(uri)
  if type(uri) ~= "string" then problem.raise(2, "resource_updated takes a URI, got a " .. type(uri)) end
  if not registry.serves(uri) then problem.raise(2, "no resource has the URI '" .. uri:sub(1, 128) .. "'") end
  local normal = uris.normal(uri)
  local resource = registry.resource(normal)
  if resource then access.tell("resource:" .. normal, resource, publisher("notifications/resources/updated", { uri = uri })) end
end

return subscriptions
