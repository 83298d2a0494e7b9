-- beneath.lua: starts bench/upstream.c, the server that stands behind the gateway in the benches of federated calls.
local uv = require "luv"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local beneath = {}

local PROGRAM <const> = "build/release/bench_upstream"
local META <const> = [["_meta":{"io.modelcontextprotocol/serverInfo":{"name":"beneath","version":"1"}}]]

-- 1 KB of result, with a text and structured content.
local RESULT <const> = ([[{"content":[{"type":"text","text":"%s"}],"structuredContent":{"total":42,"items":["a","b","c"]}]]):format(("0123456789 "):rep(80))

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function tool(name)
  return ([[{"name":"%s","description":"Looks for something. It returns what it found.","inputSchema":{"type":"object","properties":{"query":]]
    .. [[{"type":"string","description":"What to look for"},"limit":{"type":"integer"}},"required":["query"]}}]]):format(name)
end

local function tools(count)
  local list = { tool "search" }
  for i = 2, count or 1 do list[i] = tool(("tool_%05d"):format(i)) end
  return table.concat(list, ",")
end

local function capabilities() return [["capabilities":{"tools":{}}]] end

--- The files of an upstream of this revision with `count` tools, the first of which is "search": the folder's path.
function beneath.folder(revision, count)
  local folder, is_modern = gateway.new_folder(), revision == "2026-07-28"
  local modern = is_modern and ([[,"resultType":"complete",]] .. META) or ""
  write(folder .. "/tools_call", RESULT .. modern .. "}")
  write(folder .. "/tools_list", ([[{"tools":[%s]%s}]]):format(tools(count), modern .. (is_modern and [[,"ttlMs":0,"cacheScope":"private"]] or "")))
  if is_modern then
    write(folder .. "/server_discover", ([[{"supportedVersions":["%s"],%s%s,"ttlMs":0,"cacheScope":"private"}]]):format(revision, capabilities(), modern))
  else
    write(folder .. "/ping", "{}")
    write(folder .. "/initialize", ([[{"protocolVersion":"%s",%s,"serverInfo":{"name":"beneath","version":"1"}}]]):format(revision, capabilities()))
  end
  return folder
end

--- Removes what beneath.folder made.
function beneath.remove(folder) os.execute("rm -rf '" .. folder .. "'") end

--- A configuration's `command` of a program of this folder.
function beneath.command(folder) return { uv.fs_realpath(PROGRAM), "stdio", folder } end

--- Starts one over HTTP with `threads` loops: { port, url, pid, stop() }. `tls`: what spec.helpers.certificates has made,
--- with which it serves HTTPS; the table has the file `certificate`, too, then.
function beneath.start(revision, threads, count, tls)
  local folder = beneath.folder(revision, count)
  local pem = tls and folder .. "/pem"
  if pem then write(pem, tls.certificate .. tls.key) end
  for port = 21000 + math.tointeger(uv.os_getpid()) % 20000, 65535 do
    local probe = uv.new_tcp()
    local free = probe:bind("127.0.0.1", port) == 0 and probe:listen(1, function() end) == 0
    probe:close()
    uv.run "nowait"
    if free then
      local handle, pid = assert(uv.spawn(PROGRAM, { args = { tostring(port), tostring(threads), folder, pem } }, function() end))
      wait.for_fact("the upstream to listen", 5, function()
        return pcall(function() client.connect({ port = port }):close() end)
      end)
      return {
        port = port, pid = pid, url = (pem and "https://localhost:" or "http://127.0.0.1:") .. port .. "/mcp", certificate = pem,
        stop = function()
          handle:kill "sigkill"
          beneath.remove(folder)
        end,
      }
    end
  end
end

return beneath
