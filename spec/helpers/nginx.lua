-- An nginx with its default settings in front of a gateway, if nginx is installed.
local uv = require "luv"
local children = require "spec.helpers.children"
local free_port = require "spec.helpers.free_port"
local wait = require "spec.helpers.wait"

local nginx = {}
nginx.__index = nginx

-- The path of the nginx program, or nil.
function nginx.find()
  for folder in ((os.getenv "PATH" or "") .. ":/usr/sbin:/usr/local/sbin"):gmatch "[^:]+" do
    if uv.fs_access(folder .. "/nginx", "X") then
      return folder .. "/nginx"
    end
  end
end

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

local function accepts(port)
  local tcp, outcome = uv.new_tcp(), nil
  tcp:connect("127.0.0.1", port, function(err) outcome = err or "open" end)
  wait.for_fact("an answer about port " .. port, 5, function() return outcome end)
  tcp:close()
  return outcome == "open"
end

-- `locations`: the text of its server block; by default every request goes to the gateway.
function nginx.start(g, locations)
  local dir = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/moonpool-nginx-XXXXXX"))
  local self = setmetatable({ dir = dir, port = free_port() }, nginx)
  local values = { DIR = dir, PORT = self.port, LOCATIONS = (locations or "    location / { proxy_pass http://127.0.0.1:GATEWAY; }"):gsub("GATEWAY", g.port) }
  local file = assert(io.open(dir .. "/nginx.conf", "w"))
  file:write((CONFIG:gsub("%u%u%u+", values)))
  file:close()
  local pid
  self.handle, pid = uv.spawn(nginx.find(), {
    args = { "-p", dir, "-c", dir .. "/nginx.conf", "-e", dir .. "/errors" }, stdio = {},
  }, function()
    children.alive[pid] = nil
    self.ended = true
    self.handle:close()
  end)
  assert(self.handle, pid)
  children.alive[pid] = true
  wait.for_fact("nginx to listen", 10, function() return self.ended or accepts(self.port) end)
  assert(not self.ended, "nginx has ended")
  return self
end

function nginx:stop()
  if not self.ended then
    self.handle:kill "sigquit"
    self.handle:kill "sigterm"
    wait.for_fact("nginx to end", 10, function() return self.ended end)
  end
  os.execute("rm -r '" .. self.dir .. "'")
end

nginx.__close = nginx.stop

return nginx
