-- An nginx with its default settings in front of a gateway, if nginx is installed.
local front = require "spec.helpers.front"

local nginx = {}

-- The path of the nginx program, or nil.
function nginx.find() return front.find "nginx" end

local CONFIG = [[
daemon off;
worker_processes 1;
pid DIR/pid;
error_log DIR/errors;
events {}
http {
  access_log off;
  client_body_temp_path DIR/body;
  proxy_temp_path DIR/proxy;
  fastcgi_temp_path DIR/fastcgi;
  uwsgi_temp_path DIR/uwsgi;
  scgi_temp_path DIR/scgi;
  server {
    listen 127.0.0.1:PORT;
LOCATIONS
  }
}
]]

-- `locations`: the text of its server block; by default every request goes to the gateway.
function nginx.start(g, locations)
  local text = (locations or "    location / { proxy_pass http://127.0.0.1:GATEWAY; }"):gsub("GATEWAY", g.port)
  return front.start("nginx", CONFIG, { LOCATIONS = text }, function(dir, file) return { "-p", dir, "-c", file, "-e", dir .. "/errors" } end)
end

return nginx
