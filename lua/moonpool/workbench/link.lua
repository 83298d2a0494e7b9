-- The transports of the MCP client in the command line: the stdio of a child that serves the scripts, Streamable HTTP, or HTTP+SSE. One
-- request is in flight at a time. A link has
--   exchange(message, on_message)   sends a request; messages before its answer go to on_message, whose result, if any, is sent back.
--                                   Returns the answer; or nil, why, { status, hint }
--   tell(message)                   sends a message that has no answer
--   close()                         closes the link; returns the exit code of the child

local events = require "moonpool.events"
local http = require "moonpool.workbench.http"
local json = require "moonpool.json"
local wire = require "moonpool.wire"

local link = {}

local READ_TIMEOUT_S = 3600

-- Cancels the request `message`, because the user interrupted the command.
local function cancelled(message)
  return { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = message.id, reason = "interrupted by the user" } }
end

-- Reads messages with `read()` until the answer to `message` and returns the answer. If `read()` fails, returns its results.
local function answer_to(message, self, on_message, read)
  while true do
    local text, why, more = read()
    if why == "interrupted" then self.send(cancelled(message)) end
    if not text then return nil, why, more end
    local got = json.decode(text)
    if got and got.id == message.id and not got.method then return got end
    local back = got and got.method and on_message(got)
    if back then self.send(back) end
  end
end

-- -- a child -----------------------------------------------------------------------------------------------------------

--- Starts a child process that serves the scripts on stdio. `arguments` are those of its command line.
function link.child(arguments)
  wire.catch_interrupts()
  local w, why = wire.spawn { "stdio", "--apart", table.unpack(arguments) }
  if not w then return nil, "cannot start moonpool stdio: " .. why end
  local self, rest = {}, ""
  function self.send(message) return w:write(json.encode(message) .. "\n") end
  local function line()
    while not rest:find("\n", 1, true) do
      local bytes, wrong = w:read(READ_TIMEOUT_S)
      if not bytes or bytes == "" then return nil, wrong or "moonpool stdio ended" end
      rest = rest .. bytes
    end
    local first
    first, rest = rest:match "^([^\n]*)\n(.*)$"
    return first
  end
  function self.exchange(message, on_message)
    if not self.send(message) then return nil, "moonpool stdio ended" end
    return answer_to(message, self, on_message, line)
  end
  function self.close() return w:close() end
  return self
end

-- -- HTTP --------------------------------------------------------------------------------------------------------------

local MAX_EVENT_BYTES = 64 * 1024 * 1024

-- Parses the bytes of an event stream, in pieces of any size. Calls `on_event` with the data and name of each event that has data, until it
-- returns true. Nil, why if an event is too large.
local function parser(on_event)
  local reader = events.new(MAX_EVENT_BYTES)
  return function(bytes)
    local list, why = reader:feed(bytes)
    if not list then return nil, why end
    for _, event in ipairs(list) do
      if event.data ~= "" and on_event(event.data, event.event) then return true end
    end
    return false
  end
end

local hints = {
  [401] = "the gateway requires authentication: --bearer-env NAME sends the token in that variable",
  [403] = "the principal lacks permission, or the gateway does not serve this host name",
  [404] = "the path of its endpoint is part of the URL: /mcp, or /sse",
  [405] = "the path of its endpoint is part of the URL: /mcp, or /sse",
}

-- The error text of an answer that is not JSON-RPC.
local function refused(status, body)
  local said = json.decode(body or "")
  local about = type(said) == "table" and (type(said.error) == "table" and said.error.message or said.error_description) or nil
  return nil, "the gateway answered with status " .. status .. (type(about) == "string" and ": " .. about or ""), { status = status, hint = hints[status] }
end

local function is_stream(headers) return (headers["content-type"] or ""):lower():find "^text/event%-stream" ~= nil end

-- Makes the headers of a request: those of `headers(message)`, and the fixed ones, which take precedence.
local function merged(options, headers, more)
  local all = {}
  for _, set in ipairs { headers or {}, options.headers or {}, more } do
    for name, value in pairs(set) do all[name] = value end
  end
  return all
end

--- Makes a link to a gateway at a URL. `headers(message)` returns the headers of each request; `options`: headers (of the user), ca.
function link.url(address, headers, options)
  local place, what, hint = http.place(address)
  if not place then return nil, what, hint end
  local self, session = {}, nil
  wire.catch_interrupts()

  local function post(message)
    local answer, why, advice = http.open {
      method = "POST", place = place, ca = options.ca, body = json.encode(message),
      headers = merged(options, headers(message), {
        ["content-type"] = "application/json", accept = "application/json, text/event-stream", ["mcp-session-id"] = session,
      }),
    }
    if not answer then return nil, why, { hint = advice } end
    session = answer.headers["mcp-session-id"] or session
    return answer
  end

  function self.send(message)
    local answer = post(message)
    if answer then answer.close() end
  end

  function self.exchange(message, on_message)
    local found
    local take = parser(function(text)
      local got = json.decode(text)
      if got and got.id == message.id and not got.method then
        found = got
        return true
      end
      local back = got and got.method and on_message(got)
      if back then self.send(back) end
    end)
    local answer, why, more = post(message)
    if not answer then
      if why == "interrupted" and session then self.send(cancelled(message)) end
      return nil, why, more
    end
    local pieces, streams = {}, is_stream(answer.headers)
    repeat
      local piece, broken = answer.next()
      if not piece then
        answer.close()           -- in stateless revisions this cancels the request
        if broken == "interrupted" and session then self.send(cancelled(message)) end
        return nil, broken, {}
      end
      local taken, wrong
      if streams then taken, wrong = take(piece) else pieces[#pieces + 1] = piece end
      if wrong then
        answer.close()
        return nil, wrong, {}
      end
    until piece == "" or taken
    answer.close()
    local body = table.concat(pieces)
    found = found or not streams and json.decode(body) or nil
    if type(found) ~= "table" or (found.result == nil and type(found.error) ~= "table") then return refused(answer.status, body) end
    if answer.status >= 400 and found.id ~= message.id then       -- the error comes from the transport
      return nil, found.error and found.error.message, { status = answer.status, hint = hints[answer.status] }
    end
    return found
  end

  function self.close()
    if not session then return end
    http.ask { method = "DELETE", place = place, ca = options.ca, headers = merged(options, nil, { ["mcp-session-id"] = session }) }
  end
  return self
end

--- Makes a link to a gateway with HTTP+SSE (2024-11-05) at a URL: answers arrive on one stream, which names the endpoint for messages.
--- Nil, why, hint and the status if the URL does not serve such a stream.
function link.sse(address, options)
  local place, what, hint = http.place(address)
  if not place then return nil, what, hint end
  wire.catch_interrupts()
  local stream, why, advice = http.open { method = "GET", place = place, ca = options.ca, headers = merged(options, nil, { accept = "text/event-stream" }) }
  if not stream then return nil, why, advice end
  local self, waiting = {}, {}
  local take = parser(function(data, name) waiting[#waiting + 1] = { data = data, name = name } end)

  -- Reads the next event; or nil, why.
  local function pull()
    while not waiting[1] do
      local piece, broken = stream.next()
      if not piece or piece == "" then return nil, broken or "the gateway ended its stream" end
      local _, wrong = take(piece)
      if wrong then return nil, wrong end
    end
    return table.remove(waiting, 1)
  end

  if stream.status ~= 200 or not is_stream(stream.headers) then
    stream.close()
    local _, said, more = refused(stream.status)
    return nil, stream.status == 200 and "the gateway opened no event stream" or said, more.hint, stream.status
  end
  local first, broken = pull()
  local messages = first and first.name == "endpoint" and http.resolve(place, first.data)
  if not messages then
    stream.close()
    return nil, first and "the stream does not begin with an endpoint of the same origin" or broken
  end

  function self.send(message)
    local status, wrong, body = http.ask {
      method = "POST", place = messages, ca = options.ca, body = json.encode(message),
      headers = merged(options, nil, { ["content-type"] = "application/json" }),
    }
    if not status then return nil, wrong, {} end
    if status >= 300 then return refused(status, body) end
    return true
  end

  function self.exchange(message, on_message)
    local sent, wrong, more = self.send(message)
    if not sent then return nil, wrong, more end
    return answer_to(message, self, on_message, function()
      local event, ended = pull()
      if not event then return nil, ended, {} end
      return event.data
    end)
  end

  self.close = stream.close
  return self
end

return link
