-- An HAProxy in front of a gateway, if HAProxy is installed.
local front = require "spec.helpers.front"

local haproxy = {}

-- The path of the HAProxy program, or nil.
function haproxy.find() return front.find "haproxy" end

local CONFIG = [[
defaults
  mode MODE
  timeout connect 5s
  timeout client 1m
  timeout server 1m
frontend clients
  bind 127.0.0.1:PORT
  default_backend gateway
backend gateway
SETTINGS
  server one 127.0.0.1:GATEWAY OPTIONS
]]

-- `settings`: lines of the backend. `options`: of the server, as "send-proxy-v2".
function haproxy.start(g, mode, options, settings)
  local values = { MODE = mode, GATEWAY = g.port, OPTIONS = options or "", SETTINGS = settings or "" }
  return front.start("haproxy", CONFIG, values, function(_, file) return { "-db", "-f", file } end)
end

return haproxy
