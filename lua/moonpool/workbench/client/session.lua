-- A client session with a gateway in one revision: the handshake, requests, and messages that arrive before their
-- answers. The gateway is a child that serves scripts, or a server at a URL or a program, which a child has as its only
-- upstream: then the child does the handshake (moonpool.upstream.client).

local child_gateway = require "moonpool.workbench.client.child_gateway"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.workbench.format.failure"
local json = require "moonpool.json"
local link = require "moonpool.workbench.client.link"

local session = {}
session.__index = session

local client = { name = "moonpool call", version = "1" }

-- The capabilities that the client declares. `facts` describes the revision.
local function capabilities(facts, may_ask)
  if not facts.has_elicitation or not may_ask then return json.object {} end
  if not facts.has_elicitation_modes then return { elicitation = json.object {} } end
  return { elicitation = { form = json.object {} } }
end

local function describe(err)
  return err.message or "an error without a message"
end

-- -- a server that a child has as its upstream ---------------------------------------------------------------------------

-- Sends a message to the child. Its result; or nil and an error.
local function exchange(self, message)
  local got, why = self.link.exchange(message, function(back) return self:answer(back) end)
  if not got then return nil, { message = why, is_gone = true } end
  if got.error then return nil, got.error end
  return got.result
end

-- Sends a request to the child, of the method "moonpool/client" where no other is named. Its result; or nil and an
-- error.
local function relay(self, params, method)
  self.relayed = (self.relayed or 0) + 1
  local result, wrong = exchange(self, { jsonrpc = "2.0", id = self.relayed, method = method or "moonpool/client", params = params })
  local failed = result and result.failure
  if not failed then return result, wrong end
  local text, hint = failure(failed, self.options.server.ca)
  return nil, { message = text, hint = hint, status = failed.status, is_gone = true }
end

-- Opens the server in the revision of the options, or in that which it has.
local function open_server(self)
  local why, hint
  self.link, why = child_gateway.start(self.options.server, self.options.headers)
  if not self.link then return nil, why end
  self.is_relayed = true
  local facts = era.facts(self.revision or era.newest_stateless)
  local opened, wrong = relay(self, {
    protocolVersion = era.newest_stateful, capabilities = { elicitation = json.object {} }, clientInfo = client,
  }, "initialize")
  if opened then
    self.link.send { jsonrpc = "2.0", method = "notifications/initialized" }
    opened, wrong = relay(self, { open = { revision = self.revision, capabilities = capabilities(facts, self.options.on_ask) } })
  end
  if not opened then
    why, hint = describe(wrong), wrong.hint
    return nil, why, hint, self.link.close()
  end
  local server_info = opened.server_info
  self.revision, self.capabilities = server_info.revision, server_info.capabilities or {}
  self.facts = era.facts(self.revision) or facts
  if not self.facts.stateless and self.capabilities.logging then self:request("logging/setLevel", { level = "debug" }) end
  return self
end

-- -- both ------------------------------------------------------------------------------------------------------------

--- Opens a session. `options`: revision (of a server: nil for any), server ({ url, ca } or { command }) and headers, or
--- arguments (of a child), on_note(message), on_ask(params) -> an ElicitResult; nil if no user can answer questions.
function session.open(options)
  local self = setmetatable({ revision = options.revision, last = 0, options = options, tools = {} }, session)
  if options.server then return open_server(self) end
  self.facts = era.facts(options.revision)
  local why
  self.link, why = link.child(options.arguments)
  if not self.link then return nil, why end
  if self.facts.stateless then return self end
  local greeted, wrong = self:request("initialize", {
    protocolVersion = self.revision, capabilities = capabilities(self.facts, self.options.on_ask), clientInfo = client,
  })
  if not greeted then
    local code = self.link.close()
    return nil, describe(wrong), wrong.hint, code
  end
  self.revision, self.capabilities = greeted.protocolVersion, greeted.capabilities or {}
  self.facts = era.facts(self.revision) or self.facts
  self.link.send { jsonrpc = "2.0", method = "notifications/initialized" }
  if greeted.capabilities.logging then self:request("logging/setLevel", { level = "debug" }) end
  return self
end

-- Answers a request that the gateway sends during a call, in revisions before 2026-07-28.
function session:answer(message)
  if not message.id then
    self.options.on_note(message)
  elseif message.method == "elicitation/create" and self.options.on_ask then
    return { jsonrpc = "2.0", id = message.id, result = self.options.on_ask(message.params) }
  elseif message.method == "ping" then
    return { jsonrpc = "2.0", id = message.id, result = json.object {} }
  else
    return { jsonrpc = "2.0", id = message.id, error = errors.new("unknown_method", "moonpool call does not support this method") }
  end
end

--- Sends a request and returns its result; or nil and a JSON-RPC error. `has_progress`: the request asks for progress
--- and log messages.
function session:request(method, params, has_progress)
  if self.is_relayed then
    local got, why = relay(self, { method = method, params = json.object(params or {}), has_progress = has_progress })
    if not got then return nil, why end
    if got.error then return nil, got.error end
    return got.result
  end
  self.last = self.last + 1
  local meta = {}
  if has_progress then meta.progressToken = self.last end
  if self.facts.stateless then
    meta["io.modelcontextprotocol/protocolVersion"] = self.revision
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities(self.facts, self.options.on_ask)
    meta["io.modelcontextprotocol/clientInfo"] = client
    if has_progress then meta["io.modelcontextprotocol/logLevel"] = "debug" end
  end
  params = params or {}
  params._meta = next(meta) and meta or nil
  return exchange(self, { jsonrpc = "2.0", id = self.last, method = method, params = json.object(params) })
end

--- Lists the server's tools, by name; or nil and an error.
function session:list()
  local cursor
  repeat
    local page, why = self:request("tools/list", { cursor = cursor })
    if not page then return nil, why end
    for _, tool in ipairs(page.tools) do self.tools[tool.name] = tool end
    cursor = page.nextCursor
  until not cursor
  return self.tools
end

-- Gets the user's answers to the questions of an InputRequiredResult.
local function answers_to(self, questions)
  local found = {}
  for key, asked in pairs(questions or {}) do
    local on_ask = asked.method == "elicitation/create" and self.options.on_ask
    found[key] = on_ask and on_ask(asked.params, key) or { action = "cancel" }
  end
  return json.object(found)
end

local MAX_ROUNDS = 100     -- questions in a row of one request: more than a person answers, few enough that a server which asks for ever is left

--- Sends a request that may ask the user questions, and returns its final result; or nil and an error.
function session:ask(method, given)
  local params = given
  for _ = 1, MAX_ROUNDS do
    local result, why = self:request(method, params, true)
    if not result then return nil, why end
    if result.resultType ~= "input_required" then return result end
    params = { requestState = result.requestState, inputResponses = answers_to(self, result.inputRequests) }
    for name, value in pairs(given) do
      if name ~= "_meta" then params[name] = value end
    end
  end
  return nil, { message = ("the server has asked %d times, and asks again"):format(MAX_ROUNDS),
    hint = "does it accept the answers? --raw and `moonpool tap` show what it asks" }
end

--- Calls a tool and returns its result; or nil and an error.
function session:call(name, arguments) return self:ask("tools/call", { name = name, arguments = json.object(arguments) }) end

--- Closes the session; returns the exit code of the child.
function session:close() return self.link.close() end

return session
