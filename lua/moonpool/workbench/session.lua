-- A conversation with a gateway in one revision: the handshake that it wants, requests, and what comes before their answers.

local json = require "moonpool.json"
local link = require "moonpool.workbench.link"
local mirrored = require "moonpool.workbench.mirrored"

local session = {}
session.__index = session

session.newest = "2026-07-28"
session.legacy = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" }

local client = { name = "moonpool call", version = "1" }

local function capabilities(revision, may_ask)
  if revision < "2025-06-18" or not may_ask then return json.object {} end
  if revision < "2025-11-25" then return { elicitation = json.object {} } end
  return { elicitation = { form = json.object {} } }
end

local function describe(err)
  return err.message or "an error without words"
end

-- A link to a gateway at a URL. What is neither an event stream nor a refusal may still take 2024-11-05 by POST.
local function reach(self)
  local options = self.options
  local how = { headers = options.headers, ca = options.ca }
  if self.revision == "2024-11-05" then
    local found, why, hint, status = link.sse(options.url, how)
    if found or not status or status == 401 or status == 403 then return found, why, hint end
  end
  return link.url(options.url, function(message) return self:headers(message) end, how)
end

--- Opens one. `options`: revision, url, headers and ca (for a url), arguments (of a child), on_note(message), on_ask(params) -> an
--- ElicitResult; nil: nobody can be asked.
function session.open(options)
  local self = setmetatable({ revision = options.revision, last = 0, options = options, tools = {} }, session)
  local why, hint
  if options.url then
    self.link, why, hint = reach(self)
  else
    self.link, why, hint = link.child(options.arguments)
  end
  if not self.link then return nil, why, hint end
  if self.revision >= session.newest then return self end
  local greeted, wrong = self:request("initialize", {
    protocolVersion = self.revision, capabilities = capabilities(self.revision, self.options.on_ask), clientInfo = client,
  })
  if not greeted then
    local code = self.link.close()
    return nil, describe(wrong), wrong.hint, code
  end
  self.revision = greeted.protocolVersion
  self.link.tell { jsonrpc = "2.0", method = "notifications/initialized" }
  if greeted.capabilities.logging then self:request("logging/setLevel", { level = "debug" }) end
  return self
end

--- What an HTTP request of this revision carries besides its body.
function session:headers(message)
  local headers = {}
  if message.method ~= "initialize" and self.revision >= "2025-06-18" then headers["mcp-protocol-version"] = self.revision end
  if self.revision >= session.newest and message.method then
    local params = message.params or {}
    headers["mcp-method"] = message.method
    headers["mcp-name"] = params.name and mirrored.encode(params.name)
    for name, value in pairs(mirrored.headers(self.tools[params.name], params.arguments)) do headers[name] = value end
  end
  return headers
end

-- The answer to what the gateway asks in the middle of a call, before 2026-07-28.
local function answer(self, message)
  if not message.id then
    self.options.on_note(message)
  elseif message.method == "elicitation/create" and self.options.on_ask then
    return { jsonrpc = "2.0", id = message.id, result = self.options.on_ask(message.params) }
  elseif message.method == "ping" then
    return { jsonrpc = "2.0", id = message.id, result = json.object {} }
  else
    return { jsonrpc = "2.0", id = message.id, error = { code = -32601, message = "not here" } }
  end
end

--- The result of a request; or nil and an error of JSON-RPC. `is_followed`: progress and logs are wanted.
function session:request(method, params, is_followed)
  self.last = self.last + 1
  local meta = {}
  if is_followed then meta.progressToken = self.last end
  if self.revision >= session.newest then
    meta["io.modelcontextprotocol/protocolVersion"] = self.revision
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities(self.revision, self.options.on_ask)
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

--- The tools that are served, by name; or nil and an error.
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

--- Calls a tool; what it asks on the way is asked. A result; or nil and an error.
function session:call(name, arguments)
  local params = { name = name, arguments = json.object(arguments) }
  while true do
    local result, why = self:request("tools/call", params, true)
    if not result then return nil, why end
    if result.resultType ~= "input_required" then return result end
    params = { name = name, arguments = json.object(arguments), requestState = result.requestState, inputResponses = {} }
    for key, asked in pairs(result.inputRequests or {}) do
      params.inputResponses[key] = self.options.on_ask and asked.method == "elicitation/create" and self.options.on_ask(asked.params) or { action = "cancel" }
    end
    params.inputResponses = json.object(params.inputResponses)
  end
end

--- Ends it; gives the exit code of a child.
function session:close() return self.link.close() end

return session
