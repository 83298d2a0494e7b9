-- bench.lua: what a call, an idle stream and a start cost, against bare libh2o in the same run. `./dev bench` calls it.
-- Ratios count; absolute figures are this machine's, today's.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local under = require "bench.load"
local wait = require "spec.helpers.wait"

local ROUNDS, SECONDS, CONNECTIONS, STREAMS, STARTS = 5, 3, 64, 10000, 15
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

local function measure_calls()
  print(("tools/call of a schema-checked add; %d workers, wrk with %d connections, median of %d rounds of %d s, taking turns"):format(
    WORKERS, CONNECTIONS, ROUNDS, SECONDS))
  local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = under.add } }
  for _, kind in ipairs(under.kinds) do
    local request = under.request(g, kind)
    local bare = start_bare(request.answer)
    local rates, costs, bare_rates, bare_costs, ratios = {}, {}, {}, {}, {}
    for round = 1, ROUNDS do
      bare_rates[round], bare_costs[round] = under.run(bare.port, bare.pid, request, CONNECTIONS, SECONDS)
      rates[round], costs[round] = under.run(g.port, g.pid, request, CONNECTIONS, SECONDS)
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
    local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = under.add } }
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
print(("binary                   %.2f MB"):format(#under.read "build/release/moonpool" / 1e6))
os.exit(true) -- without taking apart what the event loop still has
