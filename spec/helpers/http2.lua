-- A client over HTTP/2 at the level of frames, which may send what no client may send. Requests are encoded as HPACK
-- literals; of answers only the status is decoded, which libh2o always writes first and never with Huffman's code.
local uv = require "luv"
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local sse = require "spec.helpers.sse"
local wait = require "spec.helpers.wait"

local http2 = {
  DATA = 0, HEADERS = 1, PRIORITY = 2, RST_STREAM = 3, SETTINGS = 4, PUSH_PROMISE = 5, PING = 6, GOAWAY = 7,
  WINDOW_UPDATE = 8, CONTINUATION = 9,
  END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8, WITH_PRIORITY = 32,
  preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  -- names of error codes
  NO_ERROR = 0, PROTOCOL_ERROR = 1, INTERNAL_ERROR = 2, FLOW_CONTROL_ERROR = 3, STREAM_CLOSED = 5, FRAME_SIZE_ERROR = 6,
  REFUSED_STREAM = 7, CANCEL = 8, COMPRESSION_ERROR = 9, ENHANCE_YOUR_CALM = 11,
  -- names of settings
  HEADER_TABLE_SIZE = 1, ENABLE_PUSH = 2, MAX_CONCURRENT_STREAMS = 3, INITIAL_WINDOW_SIZE = 4, MAX_FRAME_SIZE = 5,
}

local PATIENCE = 20 -- seconds; a fact ends the wait at once

-- Floods go on after the gateway has closed the connection: the write then fails, and must not end the process.
local pipe_signal = uv.new_signal()
pipe_signal:start("sigpipe", function() end)
pipe_signal:unref()

-- -- encoding ----------------------------------------------------------------------------------------------------------

function http2.frame(kind, flags, id, payload)
  payload = payload or ""
  return (">I3BBI4"):pack(#payload, kind, flags or 0, id or 0) .. payload
end

-- { [identifier] = value }
function http2.settings(values)
  local list = {}
  for id, value in pairs(values or {}) do
    list[#list + 1] = (">I2I4"):pack(id, value)
  end
  return http2.frame(http2.SETTINGS, 0, 0, table.concat(list))
end

function http2.window(id, increment)
  return http2.frame(http2.WINDOW_UPDATE, 0, id, (">I4"):pack(increment))
end

function http2.rst(id, code)
  return http2.frame(http2.RST_STREAM, 0, id, (">I4"):pack(code or http2.CANCEL))
end

function http2.ping(bytes)
  return http2.frame(http2.PING, 0, 0, bytes or "12345678")
end

-- An integer of HPACK with a prefix of `bits` bits in the byte `first`.
function http2.integer(first, bits, value)
  local most = (1 << bits) - 1
  if value < most then
    return string.char(first | value)
  end
  local bytes = { string.char(first | most) }
  value = value - most
  while value >= 128 do
    bytes[#bytes + 1] = string.char(value & 127 | 128)
    value = value >> 7
  end
  bytes[#bytes + 1] = string.char(value)
  return table.concat(bytes)
end

local function text(bytes)
  return http2.integer(0, 7, #bytes) .. bytes
end

-- A literal; `kind` 0: without indexing, 64: with incremental indexing.
function http2.literal(name, value, kind)
  return string.char(kind or 0) .. text(name) .. text(value)
end

-- A block from a list of { name, value }.
function http2.block(list)
  local parts = {}
  for i, pair in ipairs(list) do
    parts[i] = http2.literal(pair[1], pair[2])
  end
  return table.concat(parts)
end

-- The headers of a request as a list. `request`: method, path, authority, headers (a table by name, or a list).
function http2.fields(request)
  local list = {
    { ":method", request.method or "POST" }, { ":scheme", "http" }, { ":path", request.path or "/mcp" },
  }
  if request.authority ~= false then
    list[4] = { ":authority", request.authority or "localhost" }
  end
  for name, value in pairs(request.headers or {}) do
    list[#list + 1] = type(name) == "number" and value or { name, value }
  end
  return list
end

http2.usual = { accept = "application/json, text/event-stream", ["content-type"] = "application/json" }

-- -- a connection ------------------------------------------------------------------------------------------------------

local peer = {}
peer.__index = peer

local function read_status(block)
  local named = { [0x88] = 200, [0x89] = 204, [0x8a] = 206, [0x8b] = 304, [0x8c] = 400, [0x8d] = 404, [0x8e] = 500 }
  return named[block:byte()] or tonumber(block:match "^\8\3(%d%d%d)")
end

local function take_frame(self, frame)
  table.insert(self.frames, frame)
  local stream = self.streams[frame.id]
  if not stream then
    stream = { data = "", events = {} }
    stream.sse = sse.new(function(event)
      table.insert(stream.events, event)
    end)
    self.streams[frame.id] = stream
  end
  if frame.kind == http2.HEADERS then
    stream.status = stream.status or read_status(frame.payload)
  elseif frame.kind == http2.DATA then
    stream.data = stream.data .. frame.payload
    stream.sse:feed(frame.payload)
    self.received = self.received + #frame.payload
  elseif frame.kind == http2.RST_STREAM then
    stream.reset = stream.reset or (">I4"):unpack(frame.payload)
  elseif frame.kind == http2.GOAWAY then
    local last, code = (">I4I4"):unpack(frame.payload)
    self.goaway = { last = last, code = code, text = frame.payload:sub(9) }
  elseif frame.kind == http2.SETTINGS and frame.flags & http2.ACK == 0 and self.acknowledges then
    self:send(http2.frame(http2.SETTINGS, http2.ACK))
  end
  if (frame.kind == http2.HEADERS or frame.kind == http2.DATA) and frame.flags & http2.END_STREAM ~= 0 then
    stream.ended = true
  end
end

local function pump(self)
  local connection = self.connection
  if #connection.inbox == 0 then
    return
  end
  self.rest = self.rest .. table.concat(connection.inbox)
  connection.inbox = {}
  local at = 1
  while #self.rest - at + 1 >= 9 do
    local len, kind, flags, id = (">I3BBI4"):unpack(self.rest, at)
    if #self.rest - at + 1 < 9 + len then
      break
    end
    take_frame(self, { kind = kind, flags = flags, id = id, payload = self.rest:sub(at + 9, at + 8 + len) })
    at = at + 9 + len
  end
  self.rest = self.rest:sub(at)
end

function peer:is_closed()
  pump(self)
  return self.connection.eof or self.connection.error
end

-- Waits until `fact(self)` gives something other than nil or false, and gives that.
function peer:wait(what, fact, seconds)
  local function named()
    local goaway = self.goaway and ("; GOAWAY %d %s"):format(self.goaway.code, self.goaway.text) or ""
    return what .. goaway .. (self:is_closed() and "; the connection is closed" or "")
  end
  return wait.for_fact(named, seconds or PATIENCE, function()
    pump(self)
    return fact(self)
  end)
end

function peer:send(...)
  self.connection:send_raw(table.concat { ... })
  return self
end

-- Sends a request and gives its id. `request.body`: a table is sent as JSON; false: the body follows later.
function peer:ask(request)
  local id, body = request.id or self.next_id, request.body
  self.next_id = math.max(self.next_id, id + 2)
  body = type(body) == "table" and cjson.encode(body) or body
  local ends = body == nil and http2.END_STREAM or 0
  self:send(http2.frame(http2.HEADERS, http2.END_HEADERS | ends, id, http2.block(http2.fields(request))))
  if body then
    for at = 1, #body, 16384 do
      local flags = at + 16384 > #body and http2.END_STREAM or 0
      self:send(http2.frame(http2.DATA, flags, id, body:sub(at, at + 16383)))
    end
  end
  return id
end

-- The stream { status, data, events, ended, reset } once it has ended.
function peer:answer(id, seconds)
  return self:wait("the answer on stream " .. id, function()
    local stream = self.streams[id]
    return stream and (stream.ended or stream.reset) and stream
  end, seconds)
end

-- `headers`: by name, which HTTP/2 has in lower case; false: none.
function peer:post(body, headers)
  local all = {}
  for name, value in pairs(http2.usual) do all[name] = value end
  for name, value in pairs(headers or {}) do all[name:lower()] = value or nil end
  return self:ask { body = body, headers = all }
end

-- A POST and its answer.
function peer:call(body, headers)
  return self:answer(self:post(body, headers))
end

function peer:is_alive()
  self.pings = (self.pings or 0) + 1
  local mark = ("%08d"):format(self.pings)
  self:send(http2.ping(mark))
  return self:wait("the answer to a PING", function()
    for _, frame in ipairs(self.frames) do
      if frame.kind == http2.PING and frame.payload == mark then return true end
    end
    return self:is_closed() and error "the connection is closed"
  end)
end

-- The GOAWAY, or `true` where the connection is closed without one.
function peer:refused(seconds)
  return self:wait("the connection to be closed", function()
    return self:is_closed() and (self.goaway or true)
  end, seconds)
end

function peer:close()
  self.connection:close()
end

peer.__close = peer.close

-- `options`: settings, bare (sends nothing by itself), acknowledges = false, and those of client.connect.
function http2.connect(where, options)
  options = options or {}
  local self = setmetatable({
    frames = {}, streams = {}, rest = "", next_id = 1, received = 0, acknowledges = options.acknowledges ~= false,
  }, peer)
  local tls = options.tls or type(where) == "table" and where.tls
  if tls then
    local with = { alpn = "h2" }
    for key, value in pairs(tls) do with[key] = value end
    options.tls = with
  end
  self.connection = client.connect(where, options)
  if not options.bare then
    self:send(http2.preface, http2.settings(options.settings))
  end
  return self
end

-- The configuration of a gateway that speaks HTTP/2 in clear text.
function http2.config(more)
  local config = { listen = { { address = "127.0.0.1:0", http2 = "on" } } }
  for key, value in pairs(more or {}) do config[key] = value end
  return config
end

return http2
