-- HTTP+SSE for a stub upstream: a stream at /sse, whose first event names the address that takes the messages.
local cjson = require "cjson.safe"
local server = require "spec.helpers.upstream.server"
local http = require "spec.helpers.upstream.http"
local stub = require "spec.helpers.stub"

local sse = {}

local exchange = setmetatable({}, { __index = server.exchange })
exchange.__index = exchange

-- Sends a message on the stream of the session. Where the server accepts a request only when it answers it, that is now.
function exchange:send(text, is_answer)
  if self.session.stream then self.session.stream:chunk(http.event(self.server, text)) end
  if is_answer and self.accept then self.accept() end
end

--- Ends the stream of the session.
function exchange:drop()
  self.session.stream:close()
  return self:forget()
end

local function open(self, request, reply)
  self:note { kind = "start", head = request.head, headers = request.headers, connection = request.connection }
  if not (request.headers.accept or ""):find("text/event-stream", 1, true) then self:blame("Accept of the stream is '%s'", request.headers.accept) end
  self.opened = self.opened + 1
  local session = server.new_session(("%d-%d"):format(self.opened, math.random(1 << 40)))
  session.number, session.stream, session.connection = self.opened, reply, request.connection
  self.sessions[session.id] = session
  reply:head(200, { { "content-type", "text/event-stream" }, { "transfer-encoding", "chunked" } })
  local address = (self.endpoint or "/messages?session_id=%s"):format(session.id)
  if not self.without_endpoint then reply:chunk("event: endpoint\ndata: " .. address .. "\n\n") end
end

local function post(self, request, reply)
  local session = self.sessions[(request.query or ""):match "session_id=(.*)" or ""]
  if not session then
    self:note { kind = "lost", head = request.head, text = request.body }
    return reply:send(404, {}, "Session not found")
  end
  local json = cjson.decode(request.body)
  if type(json) ~= "table" then
    self:blame("a body is no message: %s", request.body:sub(1, 80))
    return reply:send(400, {}, "")
  end
  local more = { head = request.head, headers = request.headers, connection = request.connection }
  if not (request.headers["content-type"] or ""):find "^application/json" then self:blame("Content-Type is '%s'", request.headers["content-type"]) end
  if self.post_gate and self.post_gate(request, reply, json) then return end
  local function accept() reply:send(202, {}, "Accepted") end
  local is_late = self.accepts_late and json.method == "tools/call"
  if not is_late then accept() end
  if not json.method then
    self:take_response(session, json, request.body, more)
  elseif json.id == nil then
    self:take_notification(session, json, request.body, more)
  else
    self:take(setmetatable({ session = session, text = request.body, json = json, head = request.head, headers = request.headers,
      accept = is_late and accept or nil }, exchange))
  end
end

local methods = {}

--- Ends the streams of all sessions.
function methods:end_streams()
  for _, session in pairs(self.sessions) do session.stream:close() end
  self.sessions = {}
end

--- Sends a message on the streams of all sessions.
function methods:push(text)
  for _, session in pairs(self.sessions) do session.stream:chunk(http.event(self, text)) end
end

--- Every request goes through `gate(request, reply)` first; if that returns true, it has answered.
function methods:answer_all(gate) self.gate = gate end

function methods:count_sessions()
  local count = 0
  for _ in pairs(self.sessions) do count = count + 1 end
  return count
end

function methods:close(fault)
  self.web:__close()
  if not fault then self:check_mistakes() end
end

--- `options` beside those of server.new: endpoint (a pattern for the address, with %s for the session), post (the
--- status for a POST at /sse), accepts_late (a call is accepted only when it is answered, as by java-sdk 2.1.0).
function sse.start(options)
  options.revision = options.revision or "2024-11-05"
  local self = server.new(options, methods)
  self.kind, self.sessions, self.opened, self.endpoint = "sse", {}, 0, options.endpoint
  self.accepts_late = options.accepts_late
  self.web = stub.start(function(request, reply)
    if self.gate and self.gate(request, reply) then return end
    if request.path == "/sse" and request.method == "GET" then
      open(self, request, reply)
    elseif request.path == "/messages" and request.method == "POST" then
      post(self, request, reply)
    else
      self:note { kind = "http", method = request.method, head = request.head, text = request.body }
      reply:send(request.path == "/sse" and (options.post or 405) or 404, {}, "")
    end
  end, options.host, options.port)
  self.web.on_left = function(number)
    for id, session in pairs(self.sessions) do
      if session.connection == number then
        self.sessions[id] = nil
        session.ended = true
        self:note { kind = "end", session = session }
        for x in pairs(self.running) do
          if x.session == session then
            x.left, x.entry.left = true, true
            x:forget()
          end
        end
      end
    end
  end
  self.port, self.url = self.web.port, self.web.url .. "/sse"
  self.entry = { url = self.url }
  return self
end

return sse
