-- bench.lua: what a call, an idle stream and a start cost, against bare libh2o in the same run. `./dev bench` calls it.
-- Ratios count; absolute figures are this machine's, today's.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local ROUNDS, SECONDS, CONNECTIONS, STREAMS, STARTS = 5, 3, 64, 10000, 15
local WORKERS = 2
local TICK = 100 -- of /proc/PID/stat, per second

local add = [[
return tool {
  "Add two numbers.",
  input = { a = t.number { "One", min = -1e9, max = 1e9 }, b = t.number "The other" },
  function(args) return args.a + args.b end,
}]]

local kinds = {
  { name = "2026-07-28", headers = { ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "add" },
    meta = [[,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}]] },
  { name = "2025-11-25", headers = { ["mcp-protocol-version"] = "2025-11-25" }, meta = "", has_session = true },
}

local function cpu_seconds(pid)
  local file <close> = assert(io.open("/proc/" .. pid .. "/stat"))
  local user, system = file:read("a"):match "%) %S %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (user + system) / TICK
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

-- Requests per second and CPU-µs per request of the server `pid`.
local function load(port, pid, kind)
  local lines = {}
  for name, value in pairs(kind.headers) do
    lines[#lines + 1] = name .. ": " .. value
  end
  local before = cpu_seconds(pid)
  local code, out, err = gateway.run_program("/usr/bin/wrk", {
    "-t2", "-c" .. CONNECTIONS, "-d" .. SECONDS .. "s", "-s", "bench/post.lua", ("http://127.0.0.1:%d/mcp"):format(port),
  }, { env = { BENCH_BODY = kind.body, BENCH_HEADERS = table.concat(lines, "\n") }, seconds = SECONDS + 20 })
  assert(code == 0 and err == "" and not out:find "Non%-2xx", "wrk failed: " .. err .. out)
  local requests = tonumber(out:match "(%d+) requests in")
  return tonumber(out:match "Requests/sec:%s+([%d.]+)"), (cpu_seconds(pid) - before) / requests * 1e6
end

local function middle(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

local function start_bare(answer)
  local path = os.tmpname()
  write(path, answer)
  for port = 20000 + uv.os_getpid() % 20000, 65535 do
    local probe = uv.new_tcp()
    local free = probe:bind("127.0.0.1", port) == 0 and probe:listen(1, function() end) == 0
    probe:close()
    uv.run "nowait"
    if free then
      local handle, pid = assert(uv.spawn("build/release/bench_bare", { args = { tostring(port), tostring(WORKERS), path } }, function() end))
      wait.for_fact("bare libh2o to listen", 5, function()
        return pcall(client.request, { port = port }, { method = "GET", path = "/" })
      end)
      return { port = port, pid = pid, stop = function() handle:kill "sigkill" os.remove(path) end }
    end
  end
end

local function measure_calls()
  print(("tools/call of a schema-checked add; %d workers, wrk with %d connections, median of %d rounds of %d s, taking turns"):format(
    WORKERS, CONNECTIONS, ROUNDS, SECONDS))
  local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = add } }
  for _, kind in ipairs(kinds) do
    kind.headers["content-type"], kind.headers.accept = "application/json", "application/json, text/event-stream"
    if kind.has_session then
      kind.headers["mcp-session-id"] = g:client(kind.name).session
    end
    kind.body = ([[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}%s}}]]):format(kind.meta)
    local headers = {} -- which the client takes for its own
    for name, value in pairs(kind.headers) do headers[name] = value end
    local answer = client.request(g, { method = "POST", path = "/mcp", headers = headers, body = kind.body })
    assert(answer.status == 200 and answer.body:find '"3"', answer.body)
    local bare = start_bare(answer.body)
    local rates, costs, bare_rates, bare_costs, ratios = {}, {}, {}, {}, {}
    for round = 1, ROUNDS do
      bare_rates[round], bare_costs[round] = load(bare.port, bare.pid, kind)
      rates[round], costs[round] = load(g.port, g.pid, kind)
      ratios[round] = rates[round] / bare_rates[round]
    end
    bare.stop()
    print(("  %s  moonpool %6.0f/s %5.1f CPU-µs   bare libh2o %6.0f/s %5.1f CPU-µs   ratio %.2f"):format(
      kind.name, middle(rates), middle(costs), middle(bare_rates), middle(bare_costs), middle(ratios)))
  end
end

local function measure_streams(path, name)
  local g <close> = gateway.start {
    workers = WORKERS, config = { heartbeat = "10m", sessions = { max = STREAMS + 10, per_principal = STREAMS + 10 },
                                  limits = { connections = STREAMS + 100 } },
  }
  local clients = {}
  local function open(count)
    for _ = 1, count do
      local c = client.connect(g)
      local headers = { accept = "text/event-stream" }
      if path == "/mcp" then
        headers["mcp-session-id"] = g:client("2025-11-25").session
      end
      c:send { method = "GET", path = path, headers = headers }
      clients[#clients + 1] = c
    end
    for i = #clients - count + 1, #clients do
      clients[i]:read_head(20)
    end
  end
  open(100)
  local before = g:rss()
  while #clients < STREAMS + 100 - 10 do
    open(math.min(200, STREAMS + 90 - #clients))
  end
  local opened = #clients - 100
  print(("  %-22s %.2f KB resident each, %d streams"):format(name, (g:rss() - before) / opened / 1024, opened))
  for _, c in ipairs(clients) do
    c:close()
  end
end

local function measure_start()
  local times = {}
  for round = 1, STARTS do
    local started = uv.hrtime()
    local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = add } }
    assert(g:client("2026-07-28"):call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }))
    times[round] = (uv.hrtime() - started) / 1e6
  end
  print(("start to first answer    %.1f ms (median of %d)"):format(middle(times), STARTS))
end

gateway.binary = "build/release/moonpool"
measure_calls()
print "idle event streams"
measure_streams("/sse", "HTTP+SSE")
measure_start()
print(("binary                   %.2f MB"):format(#read "build/release/moonpool" / 1e6))
