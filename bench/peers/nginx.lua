-- Starts nginx with bench/peers/mcp.lua behind it: Debian's nginx-light or nginx-core, libnginx-mod-http-lua and
-- lua-cjson.
local uv = require "luv"
local client = require "spec.helpers.client"
local free_port = require "spec.helpers.free_port"
local wait = require "spec.helpers.wait"

local nginx = { SESSION = "0123456789abcdef0123456789abcdef" }

local template = [[
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
worker_processes @WORKERS@;
daemon off;
master_process on;
pid @DIR@/pid;
error_log @DIR@/error.log error;
events { worker_connections 4096; }
http {
  access_log off;
  lua_package_cpath "/usr/lib/x86_64-linux-gnu/lua/5.1/?.so;;";
  client_body_temp_path @DIR@/body; proxy_temp_path @DIR@/proxy; fastcgi_temp_path @DIR@/fastcgi;
  uwsgi_temp_path @DIR@/uwsgi; scgi_temp_path @DIR@/scgi;
  client_body_buffer_size 64k;
  keepalive_requests 1000000000;
  server {
    listen 127.0.0.1:@PORT@ reuseport backlog=4096;
    location = /mcp { content_by_lua_file @HERE@/bench/peers/mcp.lua; }
  }
}
]]

--- Why nginx cannot run here; nil if it can.
function nginx.missing()
  for _, path in ipairs { "/usr/sbin/nginx", "/usr/lib/nginx/modules/ngx_http_lua_module.so", "/usr/lib/x86_64-linux-gnu/lua/5.1/cjson.so" } do
    if not uv.fs_stat(path) then return path .. " is missing: apt-get install -y nginx-light libnginx-mod-http-lua lua-cjson" end
  end
end

--- { port, pids (of its workers), stop() }
function nginx.start(workers)
  local dir, port = uv.fs_mkdtemp "/tmp/moonpool-nginx-XXXXXX", free_port()
  local text = template:gsub("@(%u+)@", { WORKERS = workers, DIR = dir, PORT = port, HERE = uv.cwd() })
  local file <close> = assert(io.open(dir .. "/nginx.conf", "w"))
  file:write(text)
  file:flush()
  local handle, pid = assert(uv.spawn("/usr/sbin/nginx", { args = { "-c", dir .. "/nginx.conf", "-p", dir } }, function() end))
  wait.for_fact("nginx to listen", 10, function()
    return pcall(client.request, { port = port }, { method = "GET", path = "/" })
  end)
  local pids = {}
  local children <close> = assert(io.open(("/proc/%d/task/%d/children"):format(pid, pid)))
  for child in children:read("a"):gmatch "%d+" do pids[#pids + 1] = tonumber(child) end
  return {
    port = port, pids = pids,
    stop = function()
      handle:kill "sigterm"
      os.execute("rm -rf " .. dir)
    end,
  }
end

return nginx
