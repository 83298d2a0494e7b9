-- beside.lua: servers that the benches compare the gateway with: bare libh2o, and nginx as a reverse proxy.
local uv = require "luv"
local client = require "spec.helpers.client"
local free_port = require "spec.helpers.free_port"
local under = require "bench.load"
local wait = require "spec.helpers.wait"

local beside = {}

local NGINX <const> = [[
worker_processes @WORKERS@;
daemon off;
pid @DIR@/pid;
error_log @DIR@/error.log error;
events { worker_connections 16384; }
http {
  access_log off;
  client_body_temp_path @DIR@/body; proxy_temp_path @DIR@/proxy; fastcgi_temp_path @DIR@/fastcgi; uwsgi_temp_path @DIR@/uwsgi; scgi_temp_path @DIR@/scgi;
  keepalive_requests 1000000000;
  upstream beneath { server 127.0.0.1:@BELOW@; keepalive 8192; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:@PORT@ reuseport backlog=4096;
    location / { proxy_pass http://beneath; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
]]

-- Waits until the port answers.
local function wait_for(what, port)
  wait.for_fact(what, 10, function()
    return pcall(client.request, { port = port }, { method = "POST", path = "/mcp", headers = {}, body = "{}" })
  end)
end

--- libh2o alone, with `threads` loops, which answers every request with this text: { port, pids, stop() }.
function beside.bare(answer, threads)
  local path, port = os.tmpname(), free_port()
  under.write(path, answer)
  local handle, pid = assert(uv.spawn("build/release/bench_bare", { args = { tostring(port), tostring(threads), path } }, function() end))
  wait_for("bare libh2o to listen", port)
  return { port = port, pids = pid, stop = function()
    handle:kill "sigkill"
    os.remove(path)
  end }
end

--- nginx with so many workers before the server at the port `below`: { port, pids, stop() }; nil where it is not installed.
function beside.nginx(below, workers)
  if not uv.fs_stat "/usr/sbin/nginx" then return nil end
  local dir, port = uv.fs_mkdtemp "/tmp/moonpool-nginx-XXXXXX", free_port()
  local values = { WORKERS = workers, DIR = dir, PORT = port, BELOW = below }
  under.write(dir .. "/nginx.conf", (NGINX:gsub("@(%u+)@", values)))
  local handle, pid = assert(uv.spawn("/usr/sbin/nginx", { args = { "-c", dir .. "/nginx.conf", "-p", dir } }, function() end))
  wait_for("nginx to listen", port)
  local pids = {}
  for child in under.read(("/proc/%d/task/%d/children"):format(pid, pid)):gmatch "%d+" do pids[#pids + 1] = math.tointeger(child) end
  return { port = port, pids = pids, stop = function()
    handle:kill "sigterm"
    os.execute("rm -rf '" .. dir .. "'")
  end }
end

return beside
