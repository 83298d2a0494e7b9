-- free_port(): an unused port of 127.0.0.1, for programs that cannot pick a port and print it. It is below the range
-- from which the system takes ports for those who ask for any: such a port could be taken before the program listens on
-- it.
local uv = require "luv"

local MIN_PORT <const>, TRIES <const> = 10240, 100

local function highest()
  local file = io.open "/proc/sys/net/ipv4/ip_local_port_range"
  local first = file and tonumber(file:read "a":match "%d+")
  if file then file:close() end
  return first and first > MIN_PORT + 1000 and first - 1 or 32767
end

return function()
  for _ = 1, TRIES do
    local port = MIN_PORT + string.unpack("<I4", uv.random(4, 0)) % (highest() - MIN_PORT + 1)
    local tcp = uv.new_tcp()
    tcp:bind("127.0.0.1", port)
    local bound = tcp:getsockname() -- libuv reports a port in use only later; the socket then has no port
    tcp:close()
    if bound and bound.port == port then return port end
  end
  error("no port of 127.0.0.1 is free", 2)
end
