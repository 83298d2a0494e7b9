-- initialize, ping, server/discover: who we are and what we can do.

local host = require "moonpool.host"
local access = require "moonpool.access"
local content = require "moonpool.content"
local era = require "moonpool.era"
local errors = require "moonpool.errors"
local json = require "moonpool.json"
local principal = require "moonpool.principal"
local registry = require "moonpool.registry"

local lifecycle = {}

local legacy = { ["2024-11-05"] = true, ["2025-03-26"] = true, ["2025-06-18"] = true, ["2025-11-25"] = true }

-- A discover answer changes only with the kinds of scripts that are there.
local keep = 60000

local function is_object(value) return type(value) == "table" and debug.getmetatable(value) ~= json.array_mt end

-- Tasks have a capability of their own here, and no extension (TA-1). Whoever cannot be told from others lists none (TA-6).
local function capabilities(call)
  local told = registry.capabilities()
  if registry.offers "tasks" then
    told.extensions[registry.tasks_extension] = nil
    if next(told.extensions) == nil then told.extensions = nil end
    told.tasks = { cancel = {}, requests = { tools = { call = {} } }, list = principal.is_named(call.principal) and {} or nil }
  end
  return told
end

-- Every session hears of the lists that change.
local function follow_lists(call)
  for _, kind in ipairs { "tools", "prompts", "resources" } do
    if registry.offers(kind) then host.follow(call, access.topic(kind, call.principal)) end
  end
end

function lifecycle.initialize(call, params)
  if call.initialized and call.has_session then                                       -- L-9
    return nil, errors.new("invalid_request", "this session is initialized already", { reason = "already_initialized" })
  end
  local asked, client, can = params.protocolVersion, params.clientInfo, params.capabilities
  if type(asked) ~= "string" then return nil, errors.new("invalid_params", "params.protocolVersion must be a string") end
  if client ~= nil and not is_object(client) then return nil, errors.new("invalid_params", "params.clientInfo must be an object") end
  if can ~= nil and not is_object(can) then return nil, errors.new("invalid_params", "params.capabilities must be an object") end
  local revision = legacy[asked] and asked or era.newest_legacy                       -- L-2, L-3
  if not host.open_session(call, revision, json.encode(client or {}), json.encode(can or {})) then return {} end
  follow_lists(call)
  return {
    protocolVersion = revision, capabilities = capabilities(call), instructions = host.server.instructions,
    serverInfo = { name = host.server.name, version = host.server.version },
  }, nil, revision
end

function lifecycle.ping()
  return {}
end

lifecycle["server/discover"] = function()
  return {
    supportedVersions = { era.newest }, capabilities = registry.capabilities(), instructions = host.server.instructions,
    ttlMs = keep, cacheScope = "public", resultType = "complete", _meta = content.meta,
  }
end

return lifecycle
