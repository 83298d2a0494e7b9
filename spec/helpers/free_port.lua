-- free_port(): an unused port of 127.0.0.1, for programs that cannot pick a port and print it.
local uv = require "luv"

return function()
  local tcp = uv.new_tcp()
  tcp:bind("127.0.0.1", 0)
  local port = tcp:getsockname().port
  tcp:close()
  return port
end
