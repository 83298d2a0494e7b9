-- An HTTP/1.1 client that does exactly what a spec asks for, also what a client must not do: incomplete requests,
-- half-closes, resets, reading nothing. Answers are parsed as they arrive; the events of an event stream are in
-- `connection.events`.
local uv = require "luv"
local cjson = require "cjson.safe"
local sse = require "spec.helpers.sse"
local wait = require "spec.helpers.wait"

local client = {}

local PATIENCE = 20 -- seconds; a fact ends the wait at once, so this is for a machine that stands still

local connection = {}
connection.__index = connection

local function is_socket(port) return tostring(port):find("/", 1, true) ~= nil end

-- -- answers received ---------------------------------------------------------------------------------------------------

-- Body decoders: each takes the bytes that arrived and returns the body's bytes, the bytes left over, and whether the
-- body is complete.
local function none(rest)
  return "", rest, true
end

local function until_close(rest)
  return rest, "", false
end

local function of_length(length)
  return function(rest)
    local part = rest:sub(1, length)
    length = length - #part
    return part, rest:sub(#part + 1), length == 0
  end
end

local function chunked()
  local left, is_last = nil, false -- bytes left of this chunk
  return function(rest)
    local parts = {}
    while true do
      if left and left > 0 then
        local part = rest:sub(1, left)
        parts[#parts + 1] = part
        left, rest = left - #part, rest:sub(#part + 1)
        if left > 0 then
          return table.concat(parts), rest, false
        end
      end
      local line, after = rest:match "^([^\r\n]*)\r\n()"
      if not line then
        return table.concat(parts), rest, false
      end
      rest = rest:sub(after)
      if is_last then -- trailers, up to an empty line
        if line == "" then
          return table.concat(parts), rest, true
        end
      elseif left == 0 and line == "" then
        left = nil -- the line end after a chunk
      else
        left = assert(tonumber(line:match "^%x+", 16), "no chunk size: " .. line)
        is_last = left == 0
      end
    end
  end
end

local response = {}

-- The body that has come so far is put together when it is read: large ones come in many pieces.
function response.__index(self, name)
  if name ~= "body" then return response[name] end
  local body = table.concat(self.parts)
  self.parts = { body }
  return body
end

-- The body decoded from JSON; nil if it is not JSON.
function response:json()
  return cjson.decode(self.body)
end

local function read_headers(head)
  local headers = {}
  for name, value in head:gmatch "\r\n([^:\r\n]+):[ \t]*([^\r\n]*)" do
    name = name:lower()
    headers[name] = headers[name] and headers[name] .. ", " .. value or value
  end
  return headers
end

--- The status of the head of an answer (nil for that of a request), and its headers by their names in lower case.
function client.read_head(head)
  return tonumber(head:match "^HTTP/1%.[01] (%d%d%d)"), read_headers(head)
end

client.no_body = none

--- The decoder of the body of an answer with this status to a request of this method.
function client.decoder(method, status, headers)
  if method == "HEAD" or status == 204 or status == 304 or status < 200 then
    return none
  elseif (headers["transfer-encoding"] or ""):find "chunked" then
    return chunked()
  elseif headers["content-length"] then
    return of_length(tonumber(headers["content-length"]))
  end
  return until_close
end

local function begin_response(self, head)
  local status, reason = head:match "^HTTP/1%.[01] (%d%d%d) ?([^\r\n]*)"
  assert(status, "no HTTP answer: " .. head:sub(1, 200))
  local it = setmetatable({ status = tonumber(status), reason = reason, head = head, parts = {} }, response)
  it.headers = read_headers(head)
  self.takes_no_more = it.headers.connection == "close"
  local method = table.remove(self.asked, 1)
  it.decode = client.decoder(method, it.status, it.headers)
  if (it.headers["content-type"] or ""):find("text/event-stream", 1, true) then
    it.sse = sse.new(function(event)
      event.at = uv.hrtime() / 1e9
      table.insert(self.events, event)
    end)
  end
  if it.status >= 200 then
    table.insert(self.responses, it)
  elseif method then
    table.insert(self.asked, 1, method) -- 100 Continue announces the answer and is not an answer
  end
  return it
end

-- Parses the bytes that have arrived.
local function pump(self)
  if #self.inbox > 0 then
    self.rest = self.rest .. table.concat(self.inbox)
    self.inbox = {}
  end
  while true do
    local now = self.reading
    if not now then
      local head, after = self.rest:match "^(.-\r\n)\r\n()"
      if not head then
        return self
      end
      self.rest = self.rest:sub(after)
      now = begin_response(self, head)
      self.reading = now
    end
    local part, done
    part, self.rest, done = now.decode(self.rest)
    if now.sse then
      now.sse:feed(part)
    end
    now.parts[#now.parts + 1] = part
    if done or (now.decode == until_close and self.eof) then
      now.done, self.reading = true, nil
    else
      return self
    end
  end
end

local function describe_end(self)
  if self.error then
    return "the connection broke: " .. self.error
  elseif self.eof then
    return "the server closed the connection"
  end
end

-- Waits until `find(self)` returns a value; fails at once if the connection can bring no more bytes.
local function await(self, what, seconds, find)
  return wait.for_fact(what, seconds or PATIENCE, function()
    local over = describe_end(self)
    pump(self)
    local found = table.pack(find(self))
    if found[1] then
      return table.unpack(found, 1, found.n)
    elseif over then
      error(("%s while waiting for %s"):format(over, type(what) == "function" and what() or what), 0)
    end
  end)
end

-- Returns the head of the first answer that was not read yet; its body may still be arriving.
function connection:read_head(seconds)
  return await(self, "an answer's head", seconds, function()
    return self.responses[1]
  end)
end

-- True if the head of an answer has arrived that was not read yet.
function connection:has_begun()
  pump(self)
  return self.responses[1] ~= nil
end

-- Returns the first complete answer that was not read yet.
function connection:read_response(seconds)
  await(self, "a complete answer", seconds, function()
    return self.responses[1] and self.responses[1].done
  end)
  return table.remove(self.responses, 1)
end

-- Makes a test for events: `what` is a method's name, a JSON-RPC id, an event's name ("endpoint", "comment"), or a
-- function of the event.
local function matches(event, what)
  if type(what) == "function" then
    return what(event)
  elseif what == "comment" then
    return event.comment ~= nil
  end
  local json = type(event.json) == "table" and event.json or {}
  if type(what) == "number" then
    return json.id == what and not json.method
  end
  return json.method == what or json.id == what or (event.event == what and what ~= "message")
end

local function list_events(self)
  local seen = {}
  for i, event in ipairs(self.events) do
    seen[i] = event.comment and ": " .. event.comment or event.data and event.data:sub(1, 160) or event.event
  end
  return #seen == 0 and "no events came" or "what came:\n  " .. table.concat(seen, "\n  ")
end

-- Waits for the first unread event that matches `what`. Other events stay for later calls.
function connection:wait_event(what, seconds)
  local function named()
    return ("the event %s; %s"):format(tostring(what), list_events(self))
  end
  return await(self, named, seconds, function()
    for _, event in ipairs(self.events) do
      if not event.given and matches(event, what) then
        event.given = true
        return event
      end
    end
    if #self.responses > 0 and self.responses[#self.responses].done then
      error("the answer ended without " .. named(), 0)
    end
  end)
end

-- Returns every JSON-RPC message that the event stream has brought so far.
function connection:messages()
  uv.run "nowait"
  pump(self)
  local messages = {}
  for _, event in ipairs(self.events) do
    messages[#messages + 1] = event.json
  end
  return messages
end

-- Waits for the end of the first unread answer (for an event stream, its end), and returns the answer.
connection.wait_end = connection.read_response

-- True if the other side has sent FIN or RST.
function connection:is_closed_by_peer()
  uv.run "nowait"
  return self.eof or self.error ~= nil
end

function connection:wait_closed(seconds)
  wait.for_fact("the server to close the connection", seconds or PATIENCE, function()
    return self.eof or self.error
  end)
  pump(self)
  return self
end

-- -- TLS -------------------------------------------------------------------------------------------------------------

-- Sends the bytes that TLS has produced.
local function flush(self)
  local bytes = self.tls:take()
  if #bytes > 0 and not self.tcp:is_closing() then
    self.tcp:write(bytes, function() end)
  end
end

-- Decrypts the bytes that arrived.
local function open_bytes(self, bytes)
  local plain, state, why = self.tls:feed(bytes)
  flush(self)
  self.tls_state = state
  if #plain > 0 then
    table.insert(self.inbox, plain)
  end
  if state == "closed" then
    self.eof = true
  elseif state == "failed" then
    self.error = why
  end
end

local function shake_hands(self, options, seconds)
  self.tls = require "tls_client".new(options)
  if options.resume then
    self.tls:resume(options.resume.tls)
  end
  open_bytes(self, "")
  if options.shakes == false then
    return
  end
  wait.for_fact("a TLS handshake", seconds or PATIENCE, function()
    return self.tls_state ~= "shaking" or self.error or self.eof
  end)
  if self.tls_state ~= "open" then
    local why = self.error or "the server closed the connection"
    self:close()
    error("no TLS: " .. why, 0)
  end
end

-- Sends TLS close_notify and leaves the TCP connection open.
function connection:goodbye()
  self.tls:goodbye()
  flush(self)
  uv.run "nowait"
  return self
end

-- -- requests sent ---------------------------------------------------------------------------------------------------

function connection:send_raw(bytes)
  if self.tls then
    self.tls:write(bytes)
    flush(self)
  elseif not self.tcp:is_closing() then
    self.tcp:write(bytes, function() end)
  end
  return self
end

-- Sends a request { method, path, headers, body } and does not wait for the answer. `headers` is a table by name, where
-- false removes a default header, or a list of { name, value }. A body that is a table is sent as JSON.
function connection:send(request)
  local method, body = request.method or "GET", request.body
  local lines, named = { ("%s %s HTTP/1.1"):format(method, request.path or "/") }, {}
  local function add(name, value)
    named[name:lower()] = true
    if value ~= false then
      lines[#lines + 1] = name .. ": " .. tostring(value)
    end
  end
  for name, value in pairs(request.headers or {}) do
    if type(name) == "number" then
      add(value[1], value[2])
    else
      add(name, value)
    end
  end
  if type(body) == "table" then
    body = (assert(cjson.encode(body)):gsub("\\/", "/")) -- lua-cjson escapes slashes; clients usually do not
    if not named["content-type"] then
      add("Content-Type", "application/json")
    end
  end
  if not named.host then
    add("Host", is_socket(self.port) and self.host or self.host .. ":" .. self.port)
  end
  if body and not named["content-length"] and not named["transfer-encoding"] then
    add("Content-Length", #body)
  end
  table.insert(self.asked, method)
  return self:send_raw(table.concat(lines, "\r\n") .. "\r\n\r\n" .. (body or ""))
end

function connection:request(request, seconds)
  return self:send(request):read_response(seconds)
end

-- From now on reads nothing, so that the other side's writes pile up.
function connection:pause()
  self.tcp:read_stop()
  return self
end

local function start_reading(self)
  self.tcp:read_start(function(err, bytes)
    if bytes and self.tls then
      open_bytes(self, bytes)
    elseif bytes then
      table.insert(self.inbox, bytes)
    elseif err then
      self.error = err
    else
      self.eof = true
    end
  end)
end

function connection:resume()
  start_reading(self)
  return self
end

-- Half-close: FIN, but this side still reads.
function connection:fin()
  self.tcp:shutdown(function() end)
  uv.run "nowait"
  return self
end

-- Closes the connection with FIN; the kernel sends RST if unread bytes are left.
function connection:close()
  if not self.tcp:is_closing() then
    self.tcp:close()
    uv.run "nowait"
  end
  return self
end

-- Closes the connection with RST.
function connection:reset()
  if not self.tcp:is_closing() then
    self.tcp:close_reset()
    uv.run "nowait"
  end
  return self
end

connection.__close = connection.close

-- Connects to a gateway (`where` from gateway.start), to a port, or to the path of a Unix socket. `options`: host,
-- admin, buffer (bytes that the kernel holds for a paused reader), tls (the argument of tls_client.new; `resume`: an
-- earlier connection; `shakes = false`: does not wait for the handshake), from (its own address), before (bytes that
-- are sent before TLS). Uses TLS if the gateway was started with `tls`.
function client.connect(where, options)
  options = options or {}
  local port = where
  if type(where) == "table" then
    port = options.admin and where.admin_port or where.port
  end
  local is_path = is_socket(port)
  local self = setmetatable({
    host = options.host or (is_path and "localhost" or "127.0.0.1"), port = port,
    tcp = is_path and uv.new_pipe(false) or uv.new_tcp(), inbox = {}, rest = "", responses = {},
    asked = {}, events = {},
  }, connection)
  local outcome
  if options.buffer then
    self.tcp:bind(self.host, 0) -- makes the socket first, because its window must be small before it connects
    self.tcp:recv_buffer_size(options.buffer)
  end
  local function connected(err) outcome = { err = err } end
  if options.from then self.tcp:bind(options.from, 0) end
  if is_path then self.tcp:connect(port, connected) else self.tcp:connect(self.host, port, connected) end
  wait.for_fact("a connection to port " .. port, options.seconds or PATIENCE, function()
    return outcome
  end)
  if outcome.err then
    self.tcp:close()
    error("cannot connect to port " .. port .. ": " .. outcome.err, 2)
  end
  local tls = options.tls
  if tls == nil and type(where) == "table" and not options.admin then
    tls = where.tls
  end
  start_reading(self)
  if options.before then self:send_raw(options.before) end
  if tls then
    shake_hands(self, tls, options.seconds)
  end
  return self
end

-- Sends one request on a connection of its own and returns the answer.
function client.request(where, request, options)
  local self <close> = client.connect(where, options)
  request.headers = request.headers or {}
  request.headers.Connection = request.headers.Connection or "close"
  return self:request(request, (options or {}).seconds)
end

return client
