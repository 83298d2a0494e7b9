-- load.lua: wrk's load on one tools/call of either kind of revision, for the benches.
local lfs = require "lfs"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"

local load = {}

load.add = [[
return tool {
  "Add two numbers.",
  input = { a = t.number { "One", min = -1e9, max = 1e9 }, b = t.number "The other" },
  function(args) return args.a + args.b end,
}]]

load.echo = 'return tool { "Echo.", input = { text = t.string }, function(args) return args.text end }'

local META = [[,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}]]

load.kinds = {
  { name = "2026-07-28", tool = "add", headers = { ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "add" },
    meta = META },
  { name = "2025-11-25", tool = "add", headers = { ["mcp-protocol-version"] = "2025-11-25" }, meta = "", has_session = true },
}

--- The same with a text, for comparisons.
load.echo_kind = {
  name = "echo, 2026-07-28", tool = "echo", arguments = '{"text":"a text of forty-four bytes, with no escapes"}', expect = "forty-four", meta = META,
  headers = { ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "echo" },
}

--- Processor seconds of all threads of one process, or of a list of processes. /proc/PID/stat has hundredths only.
function load.cpu_seconds(pids)
  local sum = 0
  for _, pid in ipairs(type(pids) == "table" and pids or { pids }) do
    local folder = "/proc/" .. pid .. "/task/"
    for name in lfs.dir(folder) do
      local file = name:find "^%d" and io.open(folder .. name .. "/schedstat")
      if file then
        sum = sum + file:read "n"
        file:close()
      end
    end
  end
  return sum / 1e9
end

function load.read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

function load.write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local PAGE <const> = "docs/benchmarks.md"

--- Writes a section of docs/benchmarks.md in the place of the last one of this name, or at the end of the page.
function load.write_section(name, text)
  local before, after = ("<!-- %s -->\n"):format(name), ("<!-- end of %s -->\n"):format(name)
  local page = load.read(PAGE)
  local from, to = page:find(before, 1, true), select(2, page:find(after, 1, true))
  text = before .. text .. after
  load.write(PAGE, from and to and page:sub(1, from - 1) .. text .. page:sub(to + 1) or page .. "\n" .. text)
  print(PAGE .. " has the section")
end

function load.middle(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

--- What a client of `kind` sends to `g`, with `token` (nil: none): { headers, body }; its answer was right once: { …,
--- answer }.
function load.request(g, kind, token)
  local headers = { ["content-type"] = "application/json", accept = "application/json, text/event-stream" }
  for name, value in pairs(kind.headers) do headers[name] = value end
  if token then headers.authorization = "Bearer " .. token end
  if kind.has_session then headers["mcp-session-id"] = g:client(kind.name, { token = token, capabilities = kind.capabilities }).session end
  local body = ([[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s%s}}]]):format(
    kind.tool, kind.arguments or '{"a":1,"b":2}', kind.meta)
  local sent = {} -- which the client takes for its own
  for name, value in pairs(headers) do sent[name] = value end
  local answer = client.request(g, { method = "POST", path = "/mcp", headers = sent, body = body })
  assert(answer.status == 200 and answer.body:find(kind.expect or '"3"', 1, true), answer.body)
  return { headers = headers, body = body, answer = answer.body }
end

local units = { us = 1, ms = 1e3, s = 1e6, m = 6e7 }

-- "1.23ms" in microseconds.
local function microseconds(text)
  local number, unit = text:match "^([%d.]+)(%a+)$"
  return tonumber(number) * units[unit]
end

-- What the threads of wrk had sent together when bench/post.lua wrote it.
local function sent_before(path, threads)
  local sum = 0
  for i = 1, threads do
    sum = sum + tonumber(load.read(path .. "." .. i))
    os.remove(path .. "." .. i)
  end
  return sum
end

--- Requests per second, CPU-µs per request, and the latencies { p50, p99 } in µs of a server under wrk. `port`: of this
--- machine, or a list of ports, of which each thread takes one. `pid` is its process, or a list of its processes. The
--- first `unmeasured` seconds (nil: none), in which what is kept is opened, count for the latencies alone.
function load.run(port, pid, request, connections, seconds, unmeasured)
  local lines, threads, ports = {}, math.min(2, connections), type(port) == "table" and port or nil
  if ports then port, threads = ports[1], #ports end
  for name, value in pairs(request.headers) do
    lines[#lines + 1] = name .. ": " .. value
  end
  local env, path, timer = { BENCH_BODY = request.body, BENCH_HEADERS = table.concat(lines, "\n") }, os.tmpname(), uv.new_timer()
  env.BENCH_PORTS = ports and table.concat(ports, " ")
  local began = load.cpu_seconds(pid)
  if unmeasured then
    local now_s, now_us = uv.gettimeofday()
    local at = now_s + 1 + unmeasured
    env.BENCH_COUNT = at .. " " .. path
    timer:start((at - now_s) * 1000 - now_us // 1000, 0, function() began = load.cpu_seconds(pid) end)
  end
  local code, out, err = gateway.run_program("/usr/bin/wrk", {
    "--latency", "-t" .. threads, "-c" .. connections, "-d" .. seconds + (unmeasured and unmeasured + 1 or 0) .. "s", "-s", "bench/post.lua",
    ("http://127.0.0.1:%d/mcp"):format(port),
  }, { env = env, seconds = seconds + (unmeasured or 0) + 20 })
  local used = load.cpu_seconds(pid) - began
  timer:close()
  os.remove(path)
  assert(code == 0 and err == "" and not out:find "Non%-2xx", "wrk failed: " .. err .. out)
  -- of those that were sent by then, one on each connection was not answered
  local requests = tonumber(out:match "(%d+) requests in") - (unmeasured and sent_before(path, threads) - connections or 0)
  local rate = unmeasured and requests / seconds or tonumber(out:match "Requests/sec:%s+([%d.]+)")
  return rate, used / requests * 1e6, { p50 = microseconds(out:match "\n%s+50%%%s+(%S+)"), p99 = microseconds(out:match "\n%s+99%%%s+(%S+)") }
end

return load
