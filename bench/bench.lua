-- bench.lua: what a call, an idle stream and a start cost, beside bare libh2o and nginx with a hand-written Lua endpoint in one run.
-- `./dev bench [calls]` calls it.
-- Ratios count; absolute figures are this machine's, today's.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local nginx = require "bench.peers.nginx"
local under = require "bench.load"
local wait = require "spec.helpers.wait"

local ROUNDS, SECONDS, STREAMS, STARTS = tonumber(os.getenv "BENCH_ROUNDS" or "") or 5, 3, 10000, 15
local CONNECTIONS = { 1, 16, 64, 256 }
local WORKERS = 2

local middle = under.middle

local function start_bare(answer)
  local path = os.tmpname()
  under.write(path, answer)
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

-- { port, pids, stop } of nginx with a hand-written endpoint, or nil where it is not installed.
local function start_nginx()
  local missing = nginx.missing()
  if missing then
    print("  nginx + Lua is left out: " .. missing)
    return nil
  end
  return nginx.start(WORKERS)
end

-- One row of a comparison: { rate, cost, p50, p99 } of each server, the middle of ROUNDS rounds in which they take turns.
local function compare(servers, request_of, connections, rounds, seconds)
  local rows = {}
  for _ = 1, rounds do
    for name, server in pairs(servers) do
      local row = rows[name] or { rate = {}, cost = {}, p50 = {}, p99 = {} }
      rows[name] = row
      local rate, cost, latency = under.run(server.port, server.pids, request_of(name), connections, seconds)
      for key, value in pairs { rate = rate, cost = cost, p50 = latency.p50, p99 = latency.p99 } do table.insert(row[key], value) end
    end
  end
  for _, row in pairs(rows) do
    for key, list in pairs(row) do row[key] = middle(list) end
  end
  return rows
end

local function print_rows(rows, connections)
  for _, name in ipairs { "bare libh2o", "moonpool", "nginx + Lua" } do
    local row = rows[name]
    if row then
      print(("    %3d connections  %-12s %7.0f/s  %6.2f CPU-s per 100,000  p50 %6.0f µs  p99 %6.0f µs  CPU %.2f x bare, %.2f x nginx + Lua"):format(
        connections, name, row.rate, row.cost / 10, row.p50, row.p99, row.cost / rows["bare libh2o"].cost,
        rows["nginx + Lua"] and row.cost / rows["nginx + Lua"].cost or 0 / 0))
    end
  end
end

local function measure_calls()
  print(("tools/call; %d workers, wrk, servers taking turns, middle of %d rounds of %d s"):format(WORKERS, ROUNDS, SECONDS))
  local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = under.add, ["tools/echo.lua"] = under.echo } }
  local other = start_nginx()
  for _, kind in ipairs { under.kinds[1], under.kinds[2], under.echo_kind } do
    local request = under.request(g, kind)
    local to_nginx = { headers = {}, body = request.body }
    for name, value in pairs(request.headers) do to_nginx.headers[name] = name == "mcp-session-id" and nginx.SESSION or value end
    local bare = start_bare(request.answer)
    local servers = { ["bare libh2o"] = { port = bare.port, pids = bare.pid }, moonpool = { port = g.port, pids = g.pid }, ["nginx + Lua"] = other }
    local function request_of(name) return name == "nginx + Lua" and to_nginx or request end
    print(("  %s, %s"):format(kind.tool, kind.headers["mcp-protocol-version"]))
    for _, connections in ipairs(kind == under.kinds[1] and CONNECTIONS or { 64 }) do
      print_rows(compare(servers, request_of, connections, ROUNDS, SECONDS), connections)
    end
    bare.stop()
  end
  if other then other.stop() end
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
    local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = under.add } }
    assert(g:client("2026-07-28"):call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }))
    times[round] = (uv.hrtime() - started) / 1e6
  end
  print(("start to first answer    %.1f ms (median of %d)"):format(middle(times), STARTS))
end

gateway.binary = "build/release/moonpool"
measure_calls()
if arg[1] == "calls" then os.exit(true, false) end
print "idle event streams"
measure_streams("/sse", "HTTP+SSE")
measure_start()
print(("binary                   %.2f MB"):format(#under.read "build/release/moonpool" / 1e6))
os.exit(true) -- without taking apart what the event loop still has
