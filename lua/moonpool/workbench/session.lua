-- A client session with a gateway in one revision: the handshake, requests, and messages that arrive before their answers.

local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local json = require "moonpool.json"
local link = require "moonpool.workbench.link"
local mirrored = require "moonpool.workbench.mirrored"

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

-- Opens a link to a gateway at a URL. In revision 2024-11-05, a URL that answers neither with an event stream nor with an error may still
-- accept messages by POST.
local function reach(self)
  local options = self.options
  local how = { headers = options.headers, ca = options.ca }
  if self.facts.transport == "http_sse" then
    local found, why, hint, status = link.sse(options.url, how)
    if found or not status or status == 401 or status == 403 then return found, why, hint end
  end
  return link.url(options.url, function(message) return self:headers(message) end, how)
end

--- Opens a session. `options`: revision, url, headers and ca (for a url), arguments (of a child), on_note(message), on_ask(params) -> an
--- ElicitResult; nil if no user can answer questions.
function session.open(options)
  local self = setmetatable({ revision = options.revision, facts = era.facts(options.revision), last = 0, options = options, tools = {} }, session)
  local why, hint
  if options.url then
    self.link, why, hint = reach(self)
  else
    self.link, why, hint = link.child(options.arguments)
  end
  if not self.link then return nil, why, hint end
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

--- The headers of an HTTP request in this revision.
function session:headers(message)
  local headers = {}
  if message.method ~= "initialize" and self.facts.has_version_header then headers["mcp-protocol-version"] = self.revision end
  if self.facts.stateless and message.method then
    local params = message.params or {}
    headers["mcp-method"] = message.method
    local name = params.name or message.method == "resources/read" and params.uri
    headers["mcp-name"] = name and mirrored.encode(name) or nil
    for header, value in pairs(mirrored.headers(self.tools[params.name], params.arguments)) do headers[header] = value end
  end
  return headers
end

-- Answers a request that the gateway sends during a call, in revisions before 2026-07-28.
local function answer(self, message)
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

--- Sends a request and returns its result; or nil and a JSON-RPC error. `is_followed`: the request asks for progress and log messages.
function session:request(method, params, is_followed)
  self.last = self.last + 1
  local meta = {}
  if is_followed then meta.progressToken = self.last end
  if self.facts.stateless then
    meta["io.modelcontextprotocol/protocolVersion"] = self.revision
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities(self.facts, self.options.on_ask)
    meta["io.modelcontextprotocol/clientInfo"] = client
    if is_followed then meta["io.modelcontextprotocol/logLevel"] = "debug" end
  end
  params = params or {}
  params._meta = next(meta) and meta or nil
  local got, why, more = self.link.exchange({ jsonrpc = "2.0", id = self.last, method = method, params = json.object(params) },
    function(message) return answer(self, message) end)
  if not got then return nil, { message = why, status = more and more.status, hint = more and more.hint, is_gone = true } end
  if got.error then return nil, got.error end
  return got.result
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

--- Sends a request that may ask the user questions, and returns its final result; or nil and an error.
function session:ask(method, given)
  local params = given
  while true do
    local result, why = self:request(method, params, true)
    if not result then return nil, why end
    if result.resultType ~= "input_required" then return result end
    params = { requestState = result.requestState, inputResponses = answers_to(self, result.inputRequests) }
    for name, value in pairs(given) do
      if name ~= "_meta" then params[name] = value end
    end
  end
end

--- Calls a tool and returns its result; or nil and an error.
function session:call(name, arguments) return self:ask("tools/call", { name = name, arguments = json.object(arguments) }) end

--- Closes the session; returns the exit code of the child.
function session:close() return self.link.close() end

return session
