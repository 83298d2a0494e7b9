-- Clients that speak one revision correctly, for specs that do not test the transport itself: `g:client("2025-11-25")`.
-- `call` waits for the answer; `open` returns a stream that a spec can wait on, hang up or reset.
local cjson = require "cjson.safe"
local client = require "spec.helpers.client"

local eras = {}

local BOTH = "application/json, text/event-stream"
local INFO = { name = "spec", version = "1" }

-- A call whose answer may be plain JSON or an event stream, on a connection of its own.
local stream = {}
stream.__index = stream

function stream:wait_event(what, seconds)
  return self.connection:wait_event(what, seconds)
end

-- Like wait_event, for chains: `stream:wait("notifications/progress"):hang_up()`.
function stream:wait(what, seconds)
  self.last = self.connection:wait_event(what, seconds)
  return self
end

function stream:head(seconds)
  return self.connection:read_head(seconds)
end

-- True if an answer has begun to arrive.
function stream:has_begun() return self.connection:has_begun() end

-- Waits for the JSON-RPC answer to the request that opened the stream.
function stream:answer(seconds)
  if self.on_sse then
    return self.connection:wait_event(self.id, seconds).json
  end
  local head = self.connection:read_head(seconds)
  if head.sse then
    return self.connection:wait_event(self.id, seconds).json
  end
  return assert(self.connection:read_response(seconds):json(), "the answer is no JSON")
end

function stream:messages()
  return self.connection:messages()
end

function stream:hang_up()
  self.connection:close()
  return self
end

function stream:reset()
  self.connection:reset()
  return self
end

function stream:fin()
  self.connection:fin()
  return self
end

stream.close = stream.hang_up
stream.__close = stream.hang_up

-- -- the common part of all clients ------------------------------------------------------------------------------------

local base = {}
base.__index = base

local function next_id(self)
  self.ids = self.ids + 1
  return self.ids
end

-- Sends `message` on a connection of its own and returns the connection, which is closed with the client.
local function send_apart(self, message, options)
  local connection = client.connect(self.gateway, options)
  table.insert(self.connections, connection)
  return connection:send { method = "POST", path = self.path or "/mcp", headers = self:headers(message), body = message }
end

-- Posts one message on the kept connection; returns the HTTP response.
function base:post(message, seconds)
  if not self.kept or self.kept.takes_no_more or self.kept:is_closed_by_peer() then
    self.kept = client.connect(self.gateway)
    table.insert(self.connections, self.kept)
  end
  self.kept.events = {}
  return self.kept:request({ method = "POST", path = self.path or "/mcp", headers = self:headers(message), body = message }, seconds)
end

-- Returns the JSON-RPC answer (with `result` or `error`), and its HTTP response.
function base:call(method, params, seconds)
  local message = self:message(method, params)
  local response = self:post(message, seconds)
  if not response.sse then
    return response:json(), response
  end
  for _, event in ipairs(self.kept.events) do
    if event.json and event.json.id == message.id and not event.json.method then
      return event.json, response
    end
  end
  error("the stream ended without the answer to " .. method, 2)
end

-- Returns the result, or fails the spec with the error.
function base:result(method, params, seconds)
  local answer, response = self:call(method, params, seconds)
  if not (answer and answer.result) then
    error(("%s gave %d %s"):format(method, response and response.status or 0, cjson.encode(answer)), 2)
  end
  return answer.result
end

function base:open(method, params, options)
  local message = self:message(method, params)
  return setmetatable({ id = message.id, connection = send_apart(self, message, options) }, stream)
end

function base:notify(method, params)
  return self:post { jsonrpc = "2.0", method = method, params = params }
end

-- Closes all open connections of the client, as its exit would.
function base:close()
  for _, connection in ipairs(self.connections) do
    connection:close()
  end
end

base.__close = base.close

local function class(methods)
  methods.__index = methods
  methods.__close = base.close
  return setmetatable(methods, base)
end

-- The headers of a request with the client's token, `me.token`, which a spec may change.
local function signed(self, headers)
  headers.Authorization = self.token and "Bearer " .. self.token or nil
  return headers
end

-- -- 2025-03-26, 2025-06-18, 2025-11-25: a session named by a header ------------------------------------------------------

local stateful = class {}

function stateful:headers()
  return signed(self, {
    Accept = BOTH,
    ["Mcp-Session-Id"] = self.session or false,
    ["MCP-Protocol-Version"] = self.session and self.revision >= "2025-06-18" and self.revision or false,
  })
end

function stateful:message(method, params)
  return { jsonrpc = "2.0", id = next_id(self), method = method, params = params }
end

function stateful:initialize(options)
  local answer, response = self:call("initialize", {
    protocolVersion = self.revision, capabilities = options.capabilities or {}, clientInfo = options.client_info or INFO,
  })
  assert(answer and answer.result, "initialize failed: " .. response.status .. " " .. response.body)
  self.server = answer.result
  self.session = response.headers["mcp-session-id"]
  self:notify "notifications/initialized"
end

-- Opens the standalone event stream, for messages that belong to no request.
-- Opens the session's event stream, or resumes one, and waits until the gateway has answered: what it sends from then
-- on comes there.
function stateful:get_stream(headers)
  local connection = client.connect(self.gateway)
  table.insert(self.connections, connection)
  local all = self:headers()
  all.Accept = "text/event-stream"
  for name, value in pairs(headers or {}) do
    all[name] = value
  end
  connection:send { method = "GET", path = self.path or "/mcp", headers = all }
  connection:read_head(20)
  return setmetatable({ connection = connection }, stream)
end

function stateful:delete()
  return client.request(self.gateway, { method = "DELETE", path = self.path or "/mcp", headers = self:headers() })
end

-- -- 2026-07-28: every request names its client ---------------------------------------------------------------------------

local stateless = class {}

function stateless:headers(message)
  local params = message.params or {}
  return signed(self, {
    Accept = BOTH,
    ["MCP-Protocol-Version"] = self.revision,
    ["Mcp-Method"] = message.method,
    ["Mcp-Name"] = params.name or params.uri or params.taskId or false,
  })
end

function stateless:message(method, params)
  local message = { jsonrpc = "2.0", id = next_id(self), method = method, params = {} }
  for name, value in pairs(params or {}) do
    message.params[name] = value
  end
  local meta = {
    ["io.modelcontextprotocol/protocolVersion"] = self.revision,
    ["io.modelcontextprotocol/clientCapabilities"] = self.capabilities,
    ["io.modelcontextprotocol/clientInfo"] = self.client_info,
  }
  for name, value in pairs((params or {})._meta or {}) do
    meta[name] = value
  end
  message.params._meta = meta
  return message
end

-- -- 2024-11-05: answers come on the GET stream ---------------------------------------------------------------------------

local legacy = class {}

function legacy:headers()
  return signed(self, {})
end

legacy.message = stateful.message

-- Posts one message; returns the HTTP response, which has no JSON-RPC answer.
function legacy:post(message, seconds)
  local kept = self.kept
  if not kept or kept:is_closed_by_peer() then
    kept = client.connect(self.gateway)
    self.kept = kept
    table.insert(self.connections, kept)
  end
  return kept:request({ method = "POST", path = self.endpoint, headers = self:headers(), body = message }, seconds)
end

function legacy:open(method, params)
  local message = self:message(method, params)
  self.posted = self:post(message)
  return setmetatable({ id = message.id, connection = self.stream, on_sse = true }, stream)
end

function legacy:call(method, params, seconds)
  local answer = self:open(method, params):answer(seconds)
  return answer, self.posted
end

function legacy:initialize(options)
  local answer = self:call("initialize", {
    protocolVersion = self.revision, capabilities = options.capabilities or {}, clientInfo = options.client_info or INFO,
  })
  assert(answer.result, "initialize failed: " .. cjson.encode(answer))
  self.server = answer.result
  self:notify "notifications/initialized"
end

-- Opens the stream and waits for its endpoint.
function legacy:connect(options)
  self.stream = client.connect(self.gateway, options)
  table.insert(self.connections, self.stream)
  self.stream:send { method = "GET", path = "/sse", headers = signed(self, { Accept = "text/event-stream" }) }
  self.endpoint = self.stream:wait_event("endpoint").data
end

-- -- public functions -----------------------------------------------------------------------------------------------------

-- `options`: initialize = false skips the handshake; token, capabilities, client_info; buffer (see client.connect) for
-- SSE streams; transport = "http", for a client of 2024-11-05 over Streamable HTTP.
function eras.client(gateway, revision, options)
  options = options or {}
  local self = {
    gateway = gateway, revision = revision, ids = 0, connections = {},
    capabilities = options.capabilities or {}, client_info = options.client_info or INFO, token = options.token,
  }
  if revision == "2026-07-28" then
    return setmetatable(self, stateless)
  elseif revision == "2024-11-05" and options.transport ~= "http" then
    setmetatable(self, legacy):connect(options)
  else
    setmetatable(self, stateful)
  end
  if options.initialize ~= false then
    self:initialize(options)
  end
  return self
end

return eras
