-- free_port(): a port of 127.0.0.1 that nobody has, for programs that cannot choose one and say which.
local uv = require "luv"

return function()
  local tcp = uv.new_tcp()
  tcp:bind("127.0.0.1", 0)
  local port = tcp:getsockname().port
  tcp:close()
  return port
end
