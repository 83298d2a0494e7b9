-- Connections whose events are callbacks, which cost this process little: TCP or TLS, HTTP/1.1 with one request at a
-- time, HTTP/2 with several.
--   local where = { port = g.port, tls = nil or the argument of tls_client.new }
--   local one = channels.http1(where, on_idle_end) ; one:send(bytes, function(answer, why) … end) ; one:close()
--   local two = channels.http2(where, { dwells = true }) ; two:send(fields, body, function(answer, why, is_unread) … end)
--   local stream = channels.events(where, bytes, function(event) … end, function(why) … end) ; stream:close()
local http2 = require "spec.helpers.http2"
local sse = require "spec.helpers.sse"
local uv = require "luv"

local channels = {}

-- -- a connection ----------------------------------------------------------------------------------------------------------------

local channel = {}
channel.__index = channel

function channel:close()
  self.is_over = true
  if not self.tcp:is_closing() then self.tcp:close() end
end

local function fail(self, why)
  if self.is_over then return end
  self:close()
  self.on_end(why)
end

local function flush(self)
  local bytes = self.tls:take()
  if #bytes > 0 and not self.tcp:is_closing() then self.tcp:write(bytes, function() end) end
end

local function take_tls(self, bytes)
  local plain, state, why = self.tls:feed(bytes)
  flush(self)
  if state == "failed" then return fail(self, "TLS: " .. why) end
  if state == "shaking" then return end
  if not self.is_open then
    self.is_open = true
    self.on_open()
  end
  if #plain > 0 and not self.is_over then self.on_bytes(plain) end
  if state == "closed" then fail(self, "the connection ended") end
end

function channel:write(bytes)
  if self.tls then
    self.tls:write(bytes)
    return flush(self)
  end
  self.tcp:write(bytes, function(err) if err then fail(self, err) end end)
end

-- `where.resume`: what tls_client.new gave for an earlier connection.
function channels.open(where, on_open, on_bytes, on_end)
  local self = setmetatable({ tcp = uv.new_tcp(), on_open = on_open, on_bytes = on_bytes, on_end = on_end }, channel)
  self.tcp:connect("127.0.0.1", where.port, function(err)
    if err then return fail(self, "not connected: " .. err) end
    self.tcp:read_start(function(failed, bytes)
      if not bytes then return fail(self, failed or "the connection ended") end
      if self.tls then take_tls(self, bytes) else self.on_bytes(bytes) end
    end)
    if where.tls then
      self.tls = require "tls_client".new(where.tls)
      if where.resume then self.tls:resume(where.resume) end
      return take_tls(self, "")
    end
    self.is_open = true
    on_open()
  end)
  return self
end

-- -- HTTP/1.1 --------------------------------------------------------------------------------------------------------------------

-- True once the answer is whole: its length has come, or its last chunk.
local function is_whole(text)
  local _, ends = text:find("\r\n\r\n", 1, true)
  if not ends then return false end
  local length = tonumber(text:sub(1, ends):lower():match "\r\ncontent%-length: (%d+)")
  if length then return #text - ends >= length end
  if text:find "^HTTP/1.1 204" then return true end
  return text:sub(-5) == "0\r\n\r\n"
end

local one = {}
one.__index = one

--- A client with one connection at a time. `on_idle_end(why)` is called if the gateway ends it while no answer is
--- awaited.
function channels.http1(where, on_idle_end)
  return setmetatable({ where = where, text = "", on_idle_end = on_idle_end, opened = 0 }, one)
end

local function finish(self, answer, why)
  local done = self.done
  self.done = nil
  if self.connection and (not answer or self.connects or answer:lower():find("\r\nconnection: close", 1, true)) then self:close() end
  done(answer, why)
end

local function connect(self, request)
  self.opened = self.opened + 1
  local connection
  connection = channels.open(self.where, function()
    connection:write(request)
  end, function(bytes)
    self.text = self.text .. bytes
    if self.done and is_whole(self.text) then finish(self, self.text) end
  end, function(why)
    self.connection = nil
    if self.done then return finish(self, nil, why) end
    self.on_idle_end(why)
  end)
  self.connection = connection
end

function one:send(request, done)
  self.text, self.done = "", done
  if self.connection then self.connection:write(request) else connect(self, request) end
end

function one:close()
  if not self.connection then return end
  local tls = self.connection.tls
  if tls then
    self.is_resumed = tls:facts().resumed
    if self.resumes then self.where.resume = tls end
  end
  self.connection:close()
  self.connection = nil
end

-- -- event streams ---------------------------------------------------------------------------------------------------------------

-- Gives the whole chunks at the begin of `rest` to `events`, until the stream is closed. Returns what is left.
local function cut_chunks(connection, rest, events)
  while not connection.is_over do
    local size, from = rest:match "^(%x+)\r\n()"
    local length = size and tonumber(size, 16)
    if not length or #rest < from + length + 1 then break end
    local chunk = rest:sub(from, from + length - 1)
    rest = rest:sub(from + length + 2)
    events:feed(chunk)
  end
  return rest
end

--- Sends a request of HTTP/1.1 on a connection of its own. `on_end(why)` is called if the stream ends before it is
--- closed, or is refused.
function channels.events(where, request, on_event, on_end)
  local rest, has_head, events, connection = "", false, sse.new(on_event), nil
  connection = channels.open(where, function() connection:write(request) end, function(bytes)
    rest = rest .. bytes
    if not has_head then
      local ends = select(2, rest:find("\r\n\r\n", 1, true))
      if not ends then return end
      if not rest:find "^HTTP/1.1 200" then return fail(connection, "refused: " .. rest) end
      has_head, rest = true, rest:sub(ends + 1)
    end
    rest = cut_chunks(connection, rest, events)
  end, on_end)
  return connection
end

-- -- HTTP/2 ----------------------------------------------------------------------------------------------------------------------

local two = {}
two.__index = two

--- A client whose requests go on one connection. After a GOAWAY it takes another one: if it `dwells`, only when the
--- GOAWAY takes no more streams.
function channels.http2(where, options)
  return setmetatable({ where = where, dwells = options.dwells, opened = 0 }, two)
end

local function end_stream(connection, id, answer, why, is_unread)
  local stream = connection.streams[id]
  if not stream then return end
  connection.streams[id] = nil
  connection.count = connection.count - 1
  stream.done(answer, why, is_unread)
  if connection.is_left and connection.count == 0 and not connection.channel.is_over then connection.channel:close() end
end

local function leave(self, connection)
  connection.is_left = true
  if self.connection == connection then self.connection = nil end
end

local function take_goaway(self, connection, payload)
  local last, code = (">I4I4"):unpack(payload)
  connection.goaway = ("GOAWAY with code %d %s"):format(code, payload:sub(9))
  if last < 0x7fffffff or not self.dwells then leave(self, connection) end
  local unread = {}
  for id in pairs(connection.streams) do
    if id > last then unread[#unread + 1] = id end
  end
  for _, id in ipairs(unread) do end_stream(connection, id, nil, connection.goaway, code == http2.NO_ERROR) end
end

local function take_frame(self, connection, kind, flags, id, payload)
  local stream = connection.streams[id]
  if kind == http2.GOAWAY then
    take_goaway(self, connection, payload)
  elseif kind == http2.SETTINGS and flags & http2.ACK == 0 then
    connection.channel:write(http2.frame(http2.SETTINGS, http2.ACK))
  elseif kind == http2.PING and flags & http2.ACK == 0 then
    connection.channel:write(http2.frame(http2.PING, http2.ACK, 0, payload))
  elseif kind == http2.RST_STREAM then
    end_stream(connection, id, nil, "the stream was reset with code " .. (">I4"):unpack(payload))
  elseif stream and kind == http2.HEADERS then
    stream.is_ok = stream.is_ok or payload:byte() == 0x88 -- HPACK's word for :status 200
  elseif stream and kind == http2.DATA then
    stream.data = stream.data .. payload
  end
  if (kind == http2.HEADERS or kind == http2.DATA) and flags & http2.END_STREAM ~= 0 and stream then
    end_stream(connection, id, stream.data, not stream.is_ok and "its status is not 200")
  end
end

local function take_frames(self, connection, bytes)
  local rest, at = connection.rest .. bytes, 1
  while #rest - at + 1 >= 9 do
    local len, kind, flags, id = (">I3BBI4"):unpack(rest, at)
    if #rest - at + 1 < 9 + len then break end
    take_frame(self, connection, kind, flags, id, rest:sub(at + 9, at + 8 + len))
    at = at + 9 + len
  end
  connection.rest = rest:sub(at)
end

local function connect_two(self)
  local connection = { streams = {}, count = 0, next_id = 1, rest = "", early = {} }
  self.opened = self.opened + 1
  self.connection = connection
  connection.channel = channels.open(self.where, function()
    connection.channel:write(http2.preface .. http2.settings {} .. http2.window(0, 0x7fff0000 - 65535) .. table.concat(connection.early))
    connection.early = nil
  end, function(bytes)
    take_frames(self, connection, bytes)
  end, function(why)
    leave(self, connection)
    local ids = {}
    for id in pairs(connection.streams) do ids[#ids + 1] = id end
    for _, id in ipairs(ids) do end_stream(connection, id, nil, why .. (connection.goaway and " after a " .. connection.goaway or "")) end
  end)
  return connection
end

--- `block`: of http2.block. `is_unread` is true if the gateway has said that it did not look at the request.
function two:send(block, body, done)
  local connection = self.connection or connect_two(self)
  local id = connection.next_id
  connection.next_id = id + 2
  connection.count = connection.count + 1
  connection.streams[id] = { data = "", done = done }
  local bytes = http2.frame(http2.HEADERS, http2.END_HEADERS, id, block) .. http2.frame(http2.DATA, http2.END_STREAM, id, body)
  if connection.early then connection.early[#connection.early + 1] = bytes else connection.channel:write(bytes) end
end

function two:close()
  if self.connection then self.connection.channel:close() end
  self.connection = nil
end

return channels
