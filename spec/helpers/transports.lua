-- The transports of a conversation, with one interface for player.lua. A transport has
--   say(text, about)   sends a message's bytes; `about`: method, name, id, headers, is_request, is_first. Over HTTP returns an
--                      exchange { status = function }, whose `status` waits for the HTTP status
--   streams()          the streams that bring messages: { name, queue = { { text =, event = }, … }, over, apart, id }. `over`: the stream has
--                      ended; `apart`: it belongs to one call; `id`: the last event id
--   request(step)      sends any HTTP request; returns an exchange
--   listen()           opens the stream for messages of no call; drop(id) closes the stream of a call; resume(id) resumes it
--   close()            closes the connections
--   leave()            ends the session as a client should
local client = require "spec.helpers.client"
local stdio = require "spec.helpers.stdio"
local wait = require "spec.helpers.wait"

local transports = {}

-- -- the common part of the HTTP transports -------------------------------------------------------------------------------

local exchange = {}
exchange.__index = exchange

function exchange:head() return self.connection:read_head() end

function exchange:status() return tostring(self:head().status) end

-- Moves the messages that have arrived into the queue.
function exchange:pump()
  if self.over then return self end
  self.connection:messages()
  local response = self.connection.responses[1]
  if not response then return self end
  local events = self.connection.events
  for i = self.seen + 1, #events do
    self.seen = i
    local event = events[i]
    if event.data == "" then -- an event without data only gives an id to resume from
      self.last = self.last or event.id
    elseif event.data and event.event == "message" then
      table.insert(self.queue, { text = event.data, event = event.id })
    end
  end
  if response.done then
    self.over = true
    if not response.sse and response.body ~= "" then table.insert(self.queue, { text = response.body }) end
  end
  return self
end

local http = {}
http.__index = http

function http:exchange(method, path, headers, body, fields)
  local connection = client.connect(self.g)
  connection:send { method = method, path = path, headers = headers, body = body }
  local made = setmetatable({ connection = connection, queue = {}, seen = 0, name = method .. " " .. path }, exchange)
  for name, value in pairs(fields or {}) do made[name] = value end
  table.insert(self.exchanges, made)
  return made
end

function http:streams()
  for _, made in ipairs(self.exchanges) do made:pump() end
  return self.exchanges
end

-- Discards the messages that arrived and were not read.
local function drop(made)
  made:pump()
  made.over, made.queue, made.calls = true, {}, nil
  made.connection:close()
end

function http:drop(id)
  for _, made in ipairs(self.exchanges) do
    if made.id == id then drop(made) end
  end
end

-- Resumes the stream of a call that the client dropped, or that the server closed.
function http:resume(id)
  local last
  for _, made in ipairs(self.exchanges) do
    if made.id == id then
      wait.for_fact("the stream to be let go", 20, function() return made:pump().over end)
      last = made.last or last
    end
  end
  assert(last, "no event of that stream had an id")
  local made = self:exchange("GET", "/mcp", {
    Accept = "text/event-stream", ["Mcp-Session-Id"] = self.session, ["MCP-Protocol-Version"] = self:version(), ["Last-Event-ID"] = last,
  }, nil, { id = id })
  assert(made:status() == "200", "it cannot be resumed")
end

function http:close()
  for _, made in ipairs(self.exchanges) do made.connection:close() end
end

local function over(usual, given)
  for _, pair in ipairs(given or {}) do
    for name in pairs(usual) do
      if name:lower() == pair[1]:lower() then usual[name] = nil end
    end
    usual[pair[1]] = pair[2]
  end
  return usual
end

function http:request(step)
  local headers = over({
    Accept = step.method == "GET" and "text/event-stream" or nil,
    ["Mcp-Session-Id"] = self.session or false, ["MCP-Protocol-Version"] = self:version(),
  }, step.headers)
  return self:exchange(step.method, step.path, headers)
end

-- The header MCP-Protocol-Version, in the revisions that have it.
function http:version()
  return (self.revision == "2026-07-28" or self.session and self.revision >= "2025-06-18") and self.revision or false
end

-- -- Streamable HTTP ------------------------------------------------------------------------------------------------------

local streamable = setmetatable({}, http)
streamable.__index = streamable

function streamable:say(text, about)
  local headers = { Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json" }
  headers["MCP-Protocol-Version"] = self:version()
  if self.revision == "2026-07-28" then
    headers["Mcp-Method"], headers["Mcp-Name"] = about.method or false, about.name or false
  else
    headers["Mcp-Session-Id"] = self.session or false
  end
  local made = self:exchange("POST", "/mcp", over(headers, about.headers), text, { id = about.id, name = "POST of " .. (about.method or "it") })
  if about.method == "initialize" then self.session = self.session or made:head().headers["mcp-session-id"] end
  return made
end

function streamable:expected_status(answer)
  if not answer then return "202" end
  if self.revision ~= "2026-07-28" or not answer.error then return "200" end
  local code = answer.error.code
  return code == -32601 and "404" or (code == -32603 or code > -32000) and "200" or "400"
end

function streamable:listen()
  local made = self:exchange("GET", "/mcp", {
    Accept = "text/event-stream", ["Mcp-Session-Id"] = self.session, ["MCP-Protocol-Version"] = self:version(),
  }, nil, { apart = true, endless = true })
  assert(made:status() == "200", "the stream was refused")
end

function streamable:leave()
  if self.session then
    client.request(self.g, { method = "DELETE", path = "/mcp", headers = { ["Mcp-Session-Id"] = self.session } })
  end
  self:close()
end

-- -- HTTP+SSE -------------------------------------------------------------------------------------------------------------

local sse = setmetatable({}, http)
sse.__index = sse

function sse:begin()
  self.stream = self:exchange("GET", "/sse", { Accept = "text/event-stream" }, nil, { endless = true })
  self.endpoint = self.stream.connection:wait_event("endpoint").data
end

function sse:say(text, about)
  return self:exchange("POST", self.endpoint, over({ ["Content-Type"] = "application/json" }, about.headers), text)
end

function sse.expected_status() return "202" end

function sse.listen() end

sse.leave = http.close

-- -- stdio ----------------------------------------------------------------------------------------------------------------

local pipes = {}
pipes.__index = pipes

function pipes:say(text)
  self.process:send_raw(text .. "\n")
end

function pipes:streams()
  local stream = self.stream
  for i = stream.seen + 1, #self.process.messages do
    stream.seen = i
    self.process.messages[i].given = true
    table.insert(stream.queue, { text = self.process.messages[i].line })
  end
  stream.over = self.process.eof and true or false
  return { stream }
end

function pipes.listen() end

-- Checks that the process exits with 0 and prints nothing more.
function pipes:leave()
  local process <close> = self.process
  process:leave()
end

-- -- public functions -------------------------------------------------------------------------------------------------------------

local made_of = { http = streamable, sse = sse }

-- A client of `revision` over a transport; `g` is a gateway, or for stdio the options to start the process with.
function transports.open(g, revision, transport)
  if transport == "stdio" then
    return setmetatable({ kind = transport, process = stdio.start(g), stream = { queue = {}, seen = 0, name = "stdout", endless = true } }, pipes)
  end
  local self = setmetatable({ g = g, revision = revision, exchanges = {}, kind = transport }, made_of[transport])
  if self.begin then self:begin() end
  return self
end

return transports
