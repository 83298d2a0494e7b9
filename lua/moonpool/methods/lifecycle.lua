-- initialize, ping and server/discover: the server's name, revisions and capabilities.

local host = require "moonpool.host"
local access = require "moonpool.access.access"
local content = require "moonpool.things.tool_result"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local json = require "moonpool.json"
local lazy = require "moonpool.runtime.lazy"
local channel_key = lazy "moonpool.upstream.channel_key"
local principal = require "moonpool.access.principal"
local federated = lazy "moonpool.federation.federated"
local registry = require "moonpool.registry.registry"
local server_instructions = lazy "moonpool.federation.server_instructions"
local subscriptions = require "moonpool.registry.subscriptions"
local upstreams = require "moonpool.upstream.config"

local lifecycle = {}

-- Milliseconds for which a client may cache the answer of server/discover: it changes only when the first or last
-- script of a kind does.
local DISCOVER_TTL_MS = 60000

-- limit of the bytes of JSON that a session stores of clientInfo and capabilities together
local MAX_CLIENT_BYTES = 64 * 1024

local function is_object(value) return type(value) == "table" and debug.getmetatable(value) ~= json.array_mt end

-- The capabilities for a revision with sessions: tasks are a capability there, not an extension (TA-1). Clients without
-- an authenticated principal cannot list tasks (TA-6).
local function capabilities(call)
  local declared = registry.capabilities()
  if registry.offers "tasks" then
    declared.extensions[registry.tasks_extension] = nil
    if next(declared.extensions) == nil then declared.extensions = nil end
    declared.tasks = { cancel = {}, requests = { tools = { call = {} } }, list = principal.is_named(call.principal) and {} or nil }
  end
  return declared
end

-- Subscribes a new session to the changes of all lists.
local function follow_lists(call)
  for _, kind in ipairs { "tools", "prompts", "resources" } do
    if registry.offers(kind) then
      host.session.subscribe(call, access.topic(kind, call.principal))
      if upstreams.has_any then
        for _, topic in ipairs(subscriptions.own_topics(kind, channel_key.all_of_session(call))) do host.session.subscribe(call, topic) end
      end
    end
  end
end

-- The instructions for the client of a call, and whether those for other clients may differ. Waits until the lists of
-- upstreams were read, or `list_wait` is over, if they have some: a client asks for them once.
local function instructions_for(call)
  if not (upstreams.has_any and server_instructions.are_served()) then return host.config.server.instructions, false end
  federated.settle_base()
  return server_instructions.of(call), server_instructions.may_differ()
end

function lifecycle.initialize(call, params)
  if call.initialized and call.has_session then                                       -- a second `initialize` is refused (L-9)
    return nil, errors.new("invalid_request", "this session is already initialized", { reason = "already_initialized" })
  end
  local asked, client, can = params.protocolVersion, params.clientInfo, params.capabilities
  if type(asked) ~= "string" then return nil, errors.new("invalid_params", "params.protocolVersion must be a string") end
  if client ~= nil and not is_object(client) then return nil, errors.new("invalid_params", "params.clientInfo must be an object") end
  if can ~= nil and not is_object(can) then return nil, errors.new("invalid_params", "params.capabilities must be an object") end
  -- a revision that cannot be agreed is answered with the newest that can (L-2, L-3)
  local revision = era.is_stateful(asked) and asked or era.newest_stateful
  local client_text, can_text = json.encode(client or {}), json.encode(can or {})
  if #client_text + #can_text > MAX_CLIENT_BYTES then
    return nil, errors.new("invalid_params", ("params.clientInfo and params.capabilities are %d bytes of JSON together, more than %d, "
      .. "which is what a session keeps of them: send less"):format(#client_text + #can_text, MAX_CLIENT_BYTES))
  end
  local instructions = instructions_for(call)             -- before a session is opened: this may wait
  if not host.session.open(call, revision, client_text, can_text) then return {} end
  follow_lists(call)
  host.session.settle(call)
  return {
    protocolVersion = revision, capabilities = capabilities(call), instructions = instructions,
    serverInfo = { name = host.config.server.name, version = host.config.server.version },
  }, nil, revision
end

function lifecycle.ping()
  return {}
end

lifecycle["server/discover"] = function(call)
  local instructions, may_differ = instructions_for(call)
  return {
    supportedVersions = era.supported(), capabilities = registry.capabilities(), instructions = instructions,
    ttlMs = DISCOVER_TTL_MS, cacheScope = may_differ and "private" or "public", resultType = "complete", _meta = content.meta,
  }
end

return lifecycle
