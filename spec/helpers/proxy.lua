-- A TCP proxy between a client and the gateway: it forwards bytes at once, and may cut idle connections.
local uv = require "luv"

local proxy = {}
proxy.__index = proxy

local function close(handle)
  if not handle:is_closing() then handle:close() end
end

-- Forwards bytes from one socket to the other, unless the proxy swallows them, and calls `seen(bytes)` for them.
local function pass(self, pair, from, to, seen, over, is_answer)
  from:read_start(function(_, bytes)
    if not bytes then return over() end
    seen(bytes)
    if is_answer and self.change then bytes = self.change(bytes) end
    local is_swallowed = self.swallows or is_answer and (self.swallows_answers or pair.is_muted) or not is_answer and self.swallows_requests
    if not is_swallowed and not to:is_closing() then to:write(bytes) end
  end)
end

local function join(self, near, far)
  local timer = self.idle and uv.new_timer()
  local pair = { near, far, timer or nil }
  self.pairs[#self.pairs + 1] = pair
  local function over()
    for _, handle in ipairs(pair) do close(handle) end
  end
  local function touch()
    if timer then
      timer:stop()
      timer:start(self.idle * 1000 // 1, 0, function()
        -- The loop runs timers before it reads: what came while this process stood still is read first.
        timer:start(1, 0, function()
          self.cuts = self.cuts + 1
          over()
        end)
      end)
    end
  end
  local function from_server(bytes)
    self.brought = self.brought + #bytes
    touch()
  end
  local function from_client(bytes)
    pair.subscribes = pair.subscribes or bytes:find("SUBSCRIBE", 1, true) ~= nil
    touch()
  end
  touch()
  pass(self, pair, near, far, from_client, over)
  pass(self, pair, far, near, from_server, over, true)
end

-- Starts a proxy to `port`. `options`: idle (seconds of silence after which a connection is cut), change (a function that
-- gets the bytes that came from `port`, and returns those to forward). Fields: port, cuts, brought (bytes that came from
-- `port`), swallows (true: nothing is forwarded, and no connection closes), swallows_answers (true: what comes from
-- `port` is not), swallows_requests (true: what goes there is not).
function proxy.start(port, options)
  options = options or {}
  local self = setmetatable({ server = uv.new_tcp(), pairs = {}, idle = options.idle, change = options.change, cuts = 0, brought = 0 }, proxy)
  self.server:bind("127.0.0.1", 0)
  self.server:listen(128, function()
    local near, far = uv.new_tcp(), uv.new_tcp()
    self.server:accept(near)
    near:nodelay(true)
    far:connect("127.0.0.1", port, function(err)
      if err then
        close(near)
        close(far)
      else
        join(self, near, far)
      end
    end)
  end)
  self.port = self.server:getsockname().port
  return self
end

--- Closes all connections that are open.
function proxy:cut()
  for _, pair in ipairs(self.pairs) do
    for _, handle in ipairs(pair) do close(handle) end
  end
  self.pairs = {}
end

--- Answers on the subscriptions to Redis that are open are swallowed from now on.
function proxy:mute_subscriptions()
  for _, pair in ipairs(self.pairs) do pair.is_muted = pair.subscribes end
end

function proxy:stop()
  close(self.server)
  self:cut()
end

proxy.__close = proxy.stop

return proxy
