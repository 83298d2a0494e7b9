-- A balancer before gateways: each request of a kept connection goes to one of them at random, whatever session it is of.
--   local b <close> = balancer.start { one.port, two.port }     clients connect to b.port
-- Bytes pass as they come, both ways. A client that leaves ends its connections to the gateways at once; an answer that a
-- gateway does not end ends the client's connection. A request goes to another gateway only if the first one has not taken
-- the connection. Fields: port; served (requests by place in the list); out (set of places that get no new request).
local client = require "spec.helpers.client"
local uv = require "luv"

local balancer = {}
balancer.__index = balancer

local MOST_WAITING <const> = 1 << 20 -- bytes for a slow side, above which the other side is not read
local NOBODY <const> = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

local function close(handle)
  if handle and not handle:is_closing() then handle:close() end
end

-- -- one side of a passage ------------------------------------------------------------------------------------------------

local side = {}
side.__index = side

-- `on_bytes(bytes)`; `on_end()`: the other end has closed it, or it broke.
local function new_side(handle, on_bytes, on_end)
  return setmetatable({ handle = handle, on_bytes = on_bytes, on_end = on_end }, side)
end

function side:read()
  self.is_paused = false
  self.handle:read_start(function(_, bytes)
    if bytes then self.on_bytes(bytes) else self.on_end() end
  end)
end

-- Sends bytes that came from the side `from`.
function side:pass(bytes, from)
  local handle = self.handle
  if bytes == "" or handle:is_closing() then return end
  handle:write(bytes, function()
    if from.is_paused and not from.handle:is_closing() then from:read() end
  end)
  if handle:get_write_queue_size() > MOST_WAITING and not from.is_paused then
    from.is_paused = true
    from.handle:read_stop()
  end
end

-- A function that takes the next bytes of a body, and returns how many of them belong to it and whether it is whole.
local function follow(decode)
  local undecoded = ""
  return function(bytes)
    local _, rest, is_whole = decode(undecoded .. bytes)
    undecoded = rest
    return is_whole and #bytes - #rest or #bytes, is_whole
  end
end

-- -- a client -------------------------------------------------------------------------------------------------------------

local visitor = {}
visitor.__index = visitor

function visitor:leave()
  self.is_over = true
  close(self.near.handle)
  for _, far in pairs(self.fars) do close(far.handle) end
  self.balancer.visitors[self] = nil
end

-- Closes the client's connection once all bytes are sent.
function visitor:finish()
  self.is_over = true
  if not self.near.handle:is_closing() then self.near.handle:shutdown(function() self:leave() end) end
end

local function after_answer(self)
  local request = self.request
  if not (request.is_sent and request.is_answered) then return end
  self.request = nil
  if request.is_last then return self:finish() end
  self:advance()
end

-- Bytes of an answer; `far` is the connection to a gateway.
local function take_answer(self, far, bytes)
  local request = self.request
  if self.is_over or not request or request.far ~= far or request.is_answered then
    close(far.handle) -- bytes that belong to no request
    return
  end
  while true do
    if not request.follow then
      request.head = request.head .. bytes
      local head = request.head:match "^.-\r\n\r\n"
      if not head then return end
      bytes, request.head = request.head:sub(#head + 1), ""
      self.near:pass(head, far)
      local status, headers = client.read_head(head)
      if status >= 200 then
        request.follow = follow(client.decoder(request.method, status, headers))
        request.has_begun, request.is_last = true, (headers.connection or ""):lower() == "close"
      end
    else
      local count, is_whole = request.follow(bytes)
      self.near:pass(bytes:sub(1, count), far)
      if is_whole then
        request.is_answered = true
        after_answer(self)
      end
      return
    end
  end
end

-- The gateway has closed the connection: that is the end of an answer without a length, or the answer is cut.
local function take_end(self, far)
  close(far.handle)
  if self.fars[far.place] == far then self.fars[far.place] = nil end
  local request = self.request
  if self.is_over or not request or request.far ~= far then return end
  if request.has_begun then return self:finish() end
  close(self.near.handle)
  self:leave()
end

local function connect(self, places)
  local request = self.request
  local place = table.remove(places, math.random(#places))
  local kept = self.fars[place]
  if kept and not kept.handle:is_closing() then
    request.far = kept
    return self:flush()
  end
  local handle, far = uv.new_tcp(), nil
  far = new_side(handle, function(bytes) take_answer(self, far, bytes) end, function() take_end(self, far) end)
  far.place, self.fars[place] = place, far
  handle:connect("127.0.0.1", self.balancer.ports[place], function(err)
    if self.is_over then return close(handle) end
    if err then
      close(handle)
      self.fars[place] = nil
      if #places > 0 then return connect(self, places) end
      self.near:pass(NOBODY, far)
      return self:finish()
    end
    handle:nodelay(true)
    far:read()
    request.far = far
    self:flush()
  end)
end

-- Sends what waits for the gateway.
function visitor:flush()
  local request = self.request
  if not request.is_counted then
    request.is_counted = true
    self.balancer.served[request.far.place] = (self.balancer.served[request.far.place] or 0) + 1
  end
  request.far:pass(request.waiting, self.near)
  request.waiting = ""
end

-- Takes what has come from the client: the rest of a request, or the next one when the last is answered.
function visitor:advance()
  local request = self.request
  if not request then
    local head = self.inbox:match "^.-\r\n\r\n"
    if not head then return end
    self.inbox = self.inbox:sub(#head + 1)
    local _, headers = client.read_head(head)
    local has_body = headers["content-length"] or headers["transfer-encoding"]
    request = { method = head:match "^%S+", head = "", waiting = head, takes = follow(has_body and client.decoder("", 200, headers) or client.no_body) }
    self.request = request
    local places = {}
    for place in ipairs(self.balancer.ports) do
      if not self.balancer.out[place] then places[#places + 1] = place end
    end
    if #places == 0 then
      self.near:pass(NOBODY, self.near)
      return self:finish()
    end
    connect(self, places)
  end
  if self.is_over or request.is_sent then return end
  local count, is_whole = request.takes(self.inbox)
  request.waiting, self.inbox = request.waiting .. self.inbox:sub(1, count), self.inbox:sub(count + 1)
  request.is_sent = is_whole
  if request.far then self:flush() end
  if is_whole and request.is_answered then after_answer(self) end
end

local function accept(self)
  local handle = uv.new_tcp()
  self.server:accept(handle)
  handle:nodelay(true)
  local one = setmetatable({ balancer = self, fars = {}, inbox = "" }, visitor)
  one.near = new_side(handle, function(bytes)
    if one.is_over then return end
    one.inbox = one.inbox .. bytes
    one:advance()
  end, function() one:leave() end)
  self.visitors[one] = true
  one.near:read()
end

-- -- public functions -------------------------------------------------------------------------------------------------------

--- Starts a balancer before these ports of this machine.
function balancer.start(ports)
  local self = setmetatable({ server = uv.new_tcp(), ports = ports, visitors = {}, served = {}, out = {} }, balancer)
  self.server:bind("127.0.0.1", 0)
  self.server:listen(1024, function() accept(self) end)
  self.port = self.server:getsockname().port
  return self
end

function balancer:stop()
  close(self.server)
  local all = {}
  for one in pairs(self.visitors) do all[#all + 1] = one end
  for _, one in ipairs(all) do one:leave() end
end

balancer.__close = balancer.stop

return balancer
