-- Streamable HTTP for a stub upstream: POST, GET and DELETE at /mcp, with sessions for the older revisions.
local cjson = require "cjson.safe"
local raw = require "spec.helpers.upstream.raw"
local server = require "spec.helpers.upstream.server"
local stub = require "spec.helpers.stub"

local http = {}

local MODERN <const> = "2026-07-28"
local META <const> = "io.modelcontextprotocol/"
local JSON <const> = { ["content-type"] = "application/json" }

-- -- answers ------------------------------------------------------------------------------------------------------------------

local exchange = setmetatable({}, { __index = server.exchange })
exchange.__index = exchange

--- An event of a stream, in the spelling that the server uses.
local function event(self, text) return self.spelling and self.spelling(text) or "event: message\ndata: " .. text .. "\n\n" end

http.event = event

local function head_of(self, kind)
  local headers = { { "content-type", kind } }
  if self.new_session then headers[2] = { "mcp-session-id", self.new_session } end
  for name, value in pairs(self.server.more_headers or {}) do headers[#headers + 1] = { name, value } end
  return headers
end

-- Sends a message. The answer alone is JSON, unless the server streams every answer; with messages before it, an event
-- stream.
function exchange:send(text, is_answer, status)
  local reply = self.reply
  local streams = self.server.answers == "sse" and (status or 200) == 200
  if not self.streaming and (not is_answer or streams) then
    self.streaming = true
    local headers = head_of(self, "text/event-stream")
    headers[#headers + 1] = { "transfer-encoding", "chunked" }
    reply:head(200, headers)
  end
  if self.streaming then
    reply:chunk(event(self.server, text))
    if is_answer then reply:raw "0\r\n\r\n" end
  else
    reply:send(status or 200, head_of(self, "application/json"), text)
  end
end

--- Sends bytes on the event stream of the request as they are.
function exchange:send_events(bytes)
  if not self.streaming then
    self.streaming = true
    local headers = head_of(self, "text/event-stream")
    headers[#headers + 1] = { "transfer-encoding", "chunked" }
    self.reply:head(200, headers)
  end
  if #bytes > 0 then self.reply:chunk(bytes) end
  return self
end

--- A message as an event, as bytes.
function exchange:event(text) return event(self.server, text) end

--- Ends the event stream without an answer.
function exchange:end_events()
  self.reply:raw "0\r\n\r\n"
  return self:forget()
end

--- Answers with any HTTP answer, and ends the exchange.
function exchange:http(status, headers, body)
  self.reply:send(status, headers, body or "")
  return self:forget()
end

--- Closes the connection without an answer: with FIN, or RST.
function exchange:drop()
  self.reply:close()
  return self:forget()
end

function exchange:reset()
  if not self.reply.tcp:is_closing() then self.reply.tcp:close_reset() end
  return self:forget()
end

-- -- requests -----------------------------------------------------------------------------------------------------------------

local function refuse(reply, status, code, text, id)
  reply:send(status, JSON, server.exchange.error_text(id, code, text))
end

-- The ways in which servers say that they do not know a session.
local LOST <const> = {
  ["404"] = function(reply) refuse(reply, 404, -32001, "Session not found") end,
  ["404 empty"] = function(reply) reply:send(404, {}, "") end,
  ["400"] = function(reply) refuse(reply, 400, -32000, "Bad Request: No valid session ID provided") end,
  ["-32600"] = function(reply) refuse(reply, 200, -32600, "Session not found") end,
  ["-32602"] = function(reply, id) refuse(reply, 200, -32602, "Received request before initialization was complete", id) end,
  ["-30001"] = function(reply, id) refuse(reply, 200, -30001, "Session not found", id) end,
  ["not initialized"] = function(reply) refuse(reply, 400, -32000, "Bad Request: Server not initialized") end,
}

local function check_post(self, request)
  local headers = request.headers
  local accept = headers.accept or ""
  if not (accept:find("application/json", 1, true) and accept:find("text/event-stream", 1, true)) then self:blame("Accept of a POST is '%s'", accept) end
  if not (headers["content-type"] or ""):find "^application/json" then self:blame("Content-Type is '%s'", headers["content-type"]) end
  if (headers["accept-encoding"] or "identity") ~= "identity" then self:blame("Accept-Encoding is '%s'", headers["accept-encoding"]) end
  if headers.expect then self:blame("there is an Expect header: %s", headers.expect) end
  if headers["transfer-encoding"] then self:blame("the body of a request is chunked") end
end

-- The value that a mirrored header stands for.
local function mirrored(value)
  local coded = value and value:match "^=%?base64%?(.*)%?=$"
  return coded and require("spec.helpers.base64").decode(coded) or value
end

local NAMED <const> = {
  ["tools/call"] = "name", ["prompts/get"] = "name", ["resources/read"] = "uri", ["tasks/get"] = "taskId", ["tasks/update"] = "taskId",
  ["tasks/cancel"] = "taskId",
}

-- Compares the Mcp-Param headers with the arguments that the tool's schema annotates.
local function wrong_parameter(self, request, json)
  local arguments = json.params.arguments or {}
  local wanted = {}
  for _, one in ipairs(json.method == "tools/call" and self:offered("tools", MODERN) or {}) do
    local schema = one.name == json.params.name and raw.at(one.bytes, "inputSchema", "properties")
    for name, bytes in pairs(schema and raw.members(schema) or {}) do
      local header = cjson.decode(raw.at(bytes, "x-mcp-header") or "null")
      if type(header) == "string" then wanted[header:lower()] = { value = arguments[name], header = header } end
    end
  end
  for name, one in pairs(wanted) do
    local found = mirrored(request.headers["mcp-param-" .. name])
    local value = one.value
    if value == cjson.null then value = nil end
    if math.type(value) == "float" and value == math.floor(value) then value = ("%d"):format(value) end
    if found ~= (value ~= nil and tostring(value) or nil) then return ("Mcp-Param-%s is %s"):format(one.header, tostring(found)) end
  end
end

-- The first header of a request of 2026-07-28 that is not as its body says.
local function wrong_header(self, request, json)
  local headers, params = request.headers, json.params
  if headers["mcp-protocol-version"] ~= params._meta[META .. "protocolVersion"] then return "MCP-Protocol-Version differs" end
  if headers["mcp-method"] ~= json.method then return "Mcp-Method differs" end
  local member = NAMED[json.method]
  if member and mirrored(headers["mcp-name"]) ~= params[member] then return "Mcp-Name differs" end
  return wrong_parameter(self, request, json)
end

local function is_modern(self, json)
  local meta = self.is_modern and type(json.params) == "table" and type(json.params._meta) == "table" and json.params._meta
  return meta and meta[META .. "protocolVersion"] ~= nil
end

-- The session of a request of an older revision; false if it was refused.
local function find_session(self, request, reply, json)
  local id = request.headers["mcp-session-id"]
  if not self.with_sessions then
    if id then self:blame "a session id came, and the server gives none" end
    return self.lone
  elseif json and json.method == "initialize" then
    if id then self:blame("initialize has a session id") end
    return server.new_session()
  elseif not id then
    local is_probe = json and json.method == "server/discover"
    if is_probe then return server.new_session() end
    self:blame("%s has no session id", json and json.method or request.method)
    refuse(reply, 400, -32000, "Bad Request: No valid session ID provided")
    return false
  end
  local session = self.sessions[id]
  if session then return session end
  self:note { kind = "lost", method = json and json.method, head = request.head, text = request.body }
  LOST[self.lost](reply, raw.at(request.body, "id"))
  return false
end

local function check_version(self, request, session)
  local sent = request.headers["mcp-protocol-version"]
  if not session.revision then return end
  if sent and sent ~= session.revision then self:blame("MCP-Protocol-Version is %s in a session of %s", sent, session.revision) end
  if not sent and session.revision >= "2025-06-18" and session.initialized then self:blame("MCP-Protocol-Version is missing") end
end

local function post(self, request, reply)
  if self.strict then check_post(self, request) end
  local json = cjson.decode(request.body)
  if type(json) ~= "table" or not (json.method or json.id) then
    self:blame("a body is no message: %s", request.body:sub(1, 80))
    return refuse(reply, 400, -32700, "Parse error")
  end
  local modern = is_modern(self, json)
  local session = modern and server.new_session() or not modern and find_session(self, request, reply, json)
  if not session then return end
  local more = { head = request.head, headers = request.headers, connection = request.connection }
  if not modern and self.strict then check_version(self, request, session) end
  if not json.method then
    self:take_response(session, json, request.body, more)
    return reply:send(202, {}, "")
  elseif json.id == nil then
    self:take_notification(session, json, request.body, more)
    return reply:send(202, {}, "")
  end
  local x = setmetatable({
    session = session, text = request.body, json = json, reply = reply, head = request.head, headers = request.headers, connection = request.connection,
  }, exchange)
  if json.method == "initialize" and self.with_sessions then
    self.opened = self.opened + 1
    session.id = ("%s-%d-%d"):format(self.name or "s", self.opened, math.random(1 << 40))
    session.number = self.opened
    self.sessions[session.id] = session
    x.new_session = session.id
  end
  local wrong = modern and wrong_header(self, request, json)
  if wrong then
    self:note { kind = "mismatch", method = json.method, text = request.body, head = request.head, wrong = wrong }
    if not self.mismatches_are_expected then self:blame("%s: %s", json.method, wrong) end
    return refuse(reply, 400, -32020, wrong, raw.at(request.body, "id"))
  end
  self:take(x)
end

local function get(self, request, reply)
  self:note { kind = "http", method = "GET", head = request.head, headers = request.headers, connection = request.connection }
  if self.guard and not self.guard(request.headers) then return reply:send(401, {}, "") end
  if not self.get_stream or (self.is_modern and not self.legacy[1]) then return reply:send(405, { allow = "POST" }, "") end
  local session = find_session(self, request, reply)
  if not session then return end
  reply:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
  session.stream = reply
  session.streams = (session.streams or 0) + 1
end

local function delete(self, request, reply)
  self:note { kind = "http", method = "DELETE", head = request.head, headers = request.headers, session = self.sessions[request.headers["mcp-session-id"]] }
  local session = self.with_sessions and find_session(self, request, reply)
  if session == false then return end
  if not session then return reply:send(405, { allow = "POST" }, "") end
  self.sessions[session.id] = nil
  session.ended = true
  reply:send(200, {}, "")
end

local METHODS <const> = { POST = post, GET = get, DELETE = delete }

-- -- the server -----------------------------------------------------------------------------------------------------------------

local methods = {}

--- Forgets every session, as a server that starts anew. `how`: "404", "404 empty", "400", "-32600" or "not
--- initialized".
function methods:lose_sessions(how)
  self.lost = how or "404"
  self.sessions = {}
  self.lone = server.new_session()
end

--- Sends a message on the standalone streams of all sessions, or of one.
function methods:push(text, only)
  for _, session in pairs(self.sessions) do
    if session.stream and (only == nil or session == only) then session.stream:chunk(event(self, text)) end
  end
end

--- Ends the standalone streams of all sessions.
function methods:end_streams()
  for _, session in pairs(self.sessions) do
    if session.stream then session.stream:raw "0\r\n\r\n" end
    session.stream = nil
  end
end

--- The number of sessions that are open.
function methods:count_sessions()
  local count = 0
  for _ in pairs(self.sessions) do count = count + 1 end
  return count
end

function methods:close(fault)
  if not fault then self:await_overtaken() end
  self.web:__close()
  if not fault then self:check_mistakes() end
end

--- Every request goes through `gate(request, reply)` first; if that returns true, it has answered.
function methods:answer_all(gate) self.gate = gate end

--- `options` beside those of server.new: sessions = false (none), answers = "sse" (streams every answer), get = false
--- (405), path, port, host.
function http.start(options)
  local self = server.new(options, methods)
  self.kind, self.sessions, self.opened, self.lone = "http", {}, 0, server.new_session()
  self.with_sessions, self.answers, self.get_stream, self.lost = options.sessions ~= false, options.answers, options.get ~= false, "404"
  self.name = options.name
  self.web = stub.start(function(request, reply)
    if self.gate and self.gate(request, reply) then return end
    if request.path ~= (options.path or "/mcp") then return reply:send(404, {}, "") end
    local method = METHODS[request.method]
    if not method then return reply:send(405, { allow = "POST" }, "") end
    method(self, request, reply)
  end, options.host, options.port)
  self.web.on_left = function(number)
    for x in pairs(self.running) do
      if x.connection == number then
        x.left, x.entry.left = true, true
        x:forget()
      end
    end
  end
  self.port, self.url = self.web.port, self.web.url .. (options.path or "/mcp")
  self.entry = { url = self.url }
  return self
end

return http
