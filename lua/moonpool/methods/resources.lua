-- resources/list, resources/templates/list, resources/read.

local content = require "moonpool.things.tool_result"
local contents = require "moonpool.things.resource_contents"
local errors = require "moonpool.runtime.rpc_error"
local host = require "moonpool.host"
local json = require "moonpool.json"
local registry = require "moonpool.registry.registry"
local run = require "moonpool.calls.run"
local uris = require "moonpool.runtime.uris"

local resources = {}

local function none() return nil, errors.new("unknown_method", "this server has no resources") end

resources["resources/list"] = function(call, params, era)
  if not registry.offers "resources" then return none() end
  if registry.has_lists() then
    local result, wrong = registry.page_with_instances(call, era, params.cursor)
    if result or wrong then return result, wrong end
  end
  local bytes, err = registry.page("resources", era, params.cursor, call)
  return bytes, err, true
end

resources["resources/templates/list"] = function(call, params, era)
  if not registry.offers "resources" then return none() end
  local bytes, err = registry.page("templates", era, params.cursor, call)
  return bytes, err, true
end

-- the code depends on the revision (R-2)
local function not_found(era, uri) return nil, errors.new(era.resource_not_found, "resource not found", { uri = uri }) end

-- True if reads of this URI give each principal the same bytes without a script: a fixed text in its own spelling.
local function is_freezable(resource, uri)
  return resource.is_fixed and resource.uri == uri and uris.plain(uri) == uri and not (resource.is_private or resource.has_policies or resource.requires)
end

resources["resources/read"] = function(call, params, era)
  if not registry.offers "resources" then return none() end
  local uri = params.uri
  if type(uri) ~= "string" then return nil, errors.new("invalid_params", "params.uri must be a string") end
  local normal = uris.normal(uri)
  local resource, values, generation = registry.open(call, normal)
  if not resource and values then return nil, values end
  if not resource then return not_found(era, uri) end
  resource.metrics = resource.metrics or host.metrics.resource(resource.name)
  host.call.measure(call, resource.metrics)
  if resource.upstream then values = { uri = uri } end
  local ok, value, err = run.handler(resource, "resource failed", call, era, params, resource.handler, values, call, resource.has_policies and normal or nil)
  if not ok then return value, err end
  if value == nil then return not_found(era, uri) end
  if content.is_forwarded(value) then return value end
  local list, wrong = contents.of(value, uri, resource)
  if not list then return nil, run.fault(resource, "resource failed", wrong) end
  local result = { contents = list, ttlMs = resource.ttl, cacheScope = resource.scope, resultType = "complete", _meta = content.meta }
  if not is_freezable(resource, uri) then return result end
  local convert = era.methods["resources/read"].convert_result
  if convert then convert(result) end
  local bytes = json.encode(result)
  registry.freeze(generation, "resources/read", era.date, uri, bytes, resource.metrics)
  return json.raw(bytes), nil, true
end

return resources
