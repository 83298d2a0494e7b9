-- What changes, told to who follows it: sessions by what they subscribed to, listeners (2026-07-28) by what they named, each
-- message then tagged with the listener's request.
-- Topics: "tools", "prompts", "resources" (their lists); "resource:" .. uri; "task:" .. id.

local host = require "moonpool.host"
local json = require "moonpool.json"
local problem = require "moonpool.problem"
local registry = require "moonpool.registry"

local subscriptions = {}

subscriptions.key = "io.modelcontextprotocol/subscriptionId"

--- A message for listeners in two halves: between them goes the id of the request that listens (B-3). `params` has no `_meta`.
function subscriptions.halves(method, params)
  local fields = params and json.encode(params):sub(2, -2) .. "," or ""
  return '{"jsonrpc":"2.0","method":"' .. method .. '","params":{' .. fields .. '"_meta":{"' .. subscriptions.key .. '":', "}}}"
end

--- The same for sessions.
function subscriptions.plain(method, params) return json.encode { jsonrpc = "2.0", method = method, params = params } end

local function publish(topic, method, params)
  host.publish(topic, subscriptions.plain(method, params), subscriptions.halves(method, params))
end

--- A list has changed: "tools", "prompts", "resources".
function subscriptions.list_changed(kind) publish(kind, "notifications/" .. kind .. "/list_changed") end

--- resource_updated(uri): what it holds has changed.
function subscriptions.updated(uri)
  if type(uri) ~= "string" then problem.raise(2, "resource_updated takes a URI, got a " .. type(uri)) end
  if not registry.serves(uri) then problem.raise(2, "no resource has the URI '" .. uri:sub(1, 128) .. "'") end
  if registry.resource(uri) then publish("resource:" .. uri, "notifications/resources/updated", { uri = uri }) end
end

return subscriptions
