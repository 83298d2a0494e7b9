-- A browser's EventSource: 50 event streams on one HTTP/2 connection, in Debian's chromium. Left out, with a line that
-- says so, where there is no chromium: apt-get install chromium.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local CHROMIUM = "/usr/bin/chromium"
local STREAMS = 50

-- The page opens the streams, and asks its own server for /opened when each has brought its first event, or for
-- /failed.
local function page(g)
  return ([[<!doctype html><script>
    let opened = 0
    for (let i = 0; i < %d; i++) {
      const source = new EventSource("https://localhost:%d/sse")
      source.addEventListener("endpoint", () => { if (++opened === %d) fetch("/opened") })
      source.onerror = () => fetch("/failed?" + source.readyState)
    }
  </script>]]):format(STREAMS, g.port, STREAMS)
end

-- Serves the page, and keeps the paths that were asked for: { port, paths, close }.
local function serve(html)
  local server, paths = assert(uv.new_tcp()), {}
  assert(server:bind("127.0.0.1", 0))
  server:listen(16, function()
    local c, seen = uv.new_tcp(), ""
    server:accept(c)
    c:read_start(function(_, bytes)
      if not bytes then return c:is_closing() or c:close() end
      seen = seen .. bytes
      local path = seen:match "^GET (%S+) HTTP/1.1\r\n.-\r\n\r\n"
      if not path then return end
      seen = ""
      paths[#paths + 1] = path
      c:write(("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s"):format(#html, html))
    end)
  end)
  return { port = server:getsockname().port, paths = paths, close = function() server:close() end }
end

local function find(paths, prefix)
  for _, path in ipairs(paths) do
    if path:sub(1, #prefix) == prefix then return path end
  end
end

-- Starts chromium in a folder and a process group of its own: a function that ends it.
local function browse(address)
  local folder, ended = gateway.new_folder(), false
  local handle, pid = uv.spawn(CHROMIUM, {
    args = { "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
      "--ignore-certificate-errors", "--user-data-dir=" .. folder .. "/profile", address },
    env = { "HOME=" .. folder, "PATH=" .. os.getenv "PATH" }, detached = true, stdio = {},
  }, function() ended = true end)
  assert(handle, pid)
  return function()
    uv.kill(-pid, "sigkill")
    wait.for_fact("chromium to end", 20, function() return ended end)
    handle:close()
    gateway.run_program("/bin/rm", { "-rf", folder })
  end
end

describe("a browser's EventSource", function()
  it("has 50 streams on one HTTP/2 connection, and all end with the browser", function()
    if not uv.fs_stat(CHROMIUM) then
      print "\n  left out: there is no chromium here (apt-get install chromium)"
      return
    end
    local g <close> = gateway.start { tls = true, config = {
      cors = { origins = "*" }, listen = { { address = "127.0.0.1:0", http2 = "on", tls = { certificate = "cert.pem", key = "key.pem" } } },
    } }
    local site = serve(page(g))
    local stop = browse(("http://localhost:%d/"):format(site.port))
    local ok, why = pcall(function()
      wait.for_fact(function() return "50 streams; the page asked for " .. table.concat(site.paths, " ") end, 60, function()
        return find(site.paths, "/opened") or find(site.paths, "/failed")
      end)
      assert.is_nil(find(site.paths, "/failed"))
      local gauges = g:status().gauges
      assert.equal(STREAMS, gauges.streams_open)
      assert.equal(1, gauges.http2_connections)
    end)
    stop()
    site.close()
    assert(ok, why)
    g:wait_status(function(status) return status.gauges.streams_open == 0 and status.gauges.http2_connections == 0 end)
  end)
end)
