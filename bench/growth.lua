-- growth.lua: how the processor time of a call grows with the number of connections: 64, 256, 1,000 and 4,000 of them, for
-- bare libh2o, a tool of a script, nginx before an upstream, and a forwarded call, to an upstream with TLS, too, in one run
-- in which the servers take turns. Each run begins with seconds that do not count, in which connections are opened and TLS
-- is agreed. `./dev bench growth` calls it and writes the section "Growth" of docs/benchmarks.md, with the verdicts against
-- TARGETS. A call's time is the least of the rounds: what others do on the machine, or on the machine beneath a virtual one,
-- empties the caches, and only adds; at 1,000 connections it adds the more. BENCH_QUICK=1: a short run that writes nothing.
local uv = require "luv"
local beneath = require "bench.beneath"
local beside = require "bench.beside"
local gateway = require "spec.helpers.gateway"
local certificates = require "spec.helpers.certificates"
local machine = require "bench.machine"
local under = require "bench.load"

local is_quick = os.getenv "BENCH_QUICK" == "1"
local ROUNDS <const>, SECONDS <const> = is_quick and 1 or 5, is_quick and 1 or 2
local CONNECTIONS <const> = { 64, 256, 1000, 4000 }
local MODERN <const> = "2026-07-28"
local ADD <const>, FORWARDED <const>, OVER_TLS <const> = "add of a script", "a forwarded call of 1 KB", "the same, to https"
local HANDSHAKES <const> = 200 -- connections with TLS that are open after a second, on two processors
-- What a call may cost at so many connections, where it costs 1 at 64.
local FOR_FORWARDED <const> = { [256] = 1.2, [1000] = 1.4 }
local TARGETS <const> = { [ADD] = { [256] = 1.15, [1000] = 1.15, [4000] = 1.3 }, [FORWARDED] = FOR_FORWARDED, [OVER_TLS] = FOR_FORWARDED }

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

-- Nothing is refused: what a call costs is asked, not what an overloaded gateway does.
local function start_gateway(scripts, more)
  local config = {
    scripts = { path = "scripts", watch = false }, overload = { wait = "off" },
    limits = { connections = 10000, calls_in_flight = 10000 },
  }
  for key, value in pairs(more or {}) do config[key] = value end
  return gateway.start { workers = 1, scripts = scripts, config = config }
end

local CALL <const> = {
  name = MODERN, tool = "beneath_search", arguments = '{"query":"a text","limit":3}', expect = "0123456789", meta = under.kinds[1].meta,
  headers = { ["mcp-protocol-version"] = MODERN, ["mcp-method"] = "tools/call", ["mcp-name"] = "beneath_search" },
}

-- Stops what was started, the last first, also after an error.
local stopping = { __close = function(stops)
  for i = #stops, 1, -1 do stops[i]() end
end }

-- Starts the servers, and appends to `stops` what stops each.
local function start_servers(stops)
  local servers = {}
  local function started(server)
    stops[#stops + 1] = function() server:stop() end
    return server
  end
  local function add_server(name, server, request)
    servers[#servers + 1] = { name = name, port = server.port, pids = server.pids or server.pid, request = request }
  end
  local below = beneath.start(MODERN, 1)
  stops[#stops + 1] = below.stop
  local tools = started(start_gateway { ["tools/add.lua"] = under.add })
  local function forward(url, more)
    more = more or {}
    more.upstreams = { beneath = { url = url, calls = 5000 } }
    return started(start_gateway({}, more))
  end
  local forwarding = forward(below.url)
  local add, call = under.request(tools, under.kinds[1]), under.request(forwarding, CALL)
  add_server("bare libh2o", started(beside.bare(add.answer, 1)), add)
  add_server(ADD, tools, add)
  local proxy = beside.nginx(below.port, 1)
  if proxy then add_server("nginx, proxy_pass", started(proxy), call) end
  add_server(FORWARDED, forwarding, call)
  local secret = beneath.start(MODERN, 1, 1, certificates.here())
  stops[#stops + 1] = secret.stop
  local over_tls = forward(secret.url, { http = { ca = secret.certificate } })
  add_server(OVER_TLS, over_tls, under.request(over_tls, CALL))
  return servers
end

-- The servers; each has, for each number of connections, calls a second (the most of the rounds), microseconds of
-- processor time a call (the least, and the most), and the least divided by that at 64 connections.
local function measure()
  local stops <close> = setmetatable({}, stopping)
  local servers = start_servers(stops)
  for _, server in ipairs(servers) do
    server.rounds = {}
    for _, connections in ipairs(CONNECTIONS) do server.rounds[connections] = { rate = {}, cost = {} } end
  end
  for round = 1, ROUNDS do
    for _, server in ipairs(servers) do
      for _, connections in ipairs(CONNECTIONS) do
        local rows = server.rounds[connections]
        local opening = server.name == OVER_TLS and 1 + connections // HANDSHAKES or 1
        rows.rate[round], rows.cost[round] = under.run(server.port, server.pids, server.request, connections, SECONDS, opening)
      end
    end
  end
  for _, server in ipairs(servers) do
    for _, connections in ipairs(CONNECTIONS) do
      local rounds = server.rounds[connections]
      local row = { rate = math.max(table.unpack(rounds.rate)), cost = math.min(table.unpack(rounds.cost)) }
      row.most = math.max(table.unpack(rounds.cost))
      server[connections] = row
      row.times = row.cost / server[CONNECTIONS[1]].cost
    end
  end
  return servers
end

local function verdict(server, connections)
  local most = (TARGETS[server.name] or {})[connections]
  if not most then return "" end
  return ("≤ %.2f %s"):format(most, server[connections].times <= most and "met" or "missed")
end

local about, began = machine.describe(gateway.binary), uv.hrtime()
print(("calls at 64 to 4,000 connections; 1 worker, wrk, servers taking turns, least of %d rounds of %d s"):format(ROUNDS, SECONDS))
local rows = {}
for _, server in ipairs(measure()) do
  for _, connections in ipairs(CONNECTIONS) do
    local row, target = server[connections], verdict(server, connections)
    print(("  %5d connections  %-26s %8.0f/s  %6.1f to %6.1f CPU-µs  %.2f times that at 64  %s"):format(
      connections, server.name, row.rate, row.cost, row.most, row.times, target))
    rows[#rows + 1] = ("| %d | %s | %.0f | %.1f | %.1f | %.2f | %s |\n"):format(
      connections, server.name, row.rate, row.cost, row.most, row.times, target)
  end
end
if not is_quick then
  under.write_section("growth", "## Growth\n\n" .. machine.text(about) .. "\n"
    .. "`./dev bench growth`: what a call costs at 64 to 4,000 connections, with one worker and no limit on calls: the least of "
    .. ("%d rounds of %d s in which the servers take turns, each after the seconds in which connections are opened. "):format(ROUNDS, SECONDS)
    .. "What others do on the same machine empties caches, and only adds; \"most\" is what the worst of the rounds cost.\n\n"
    .. "| connections | server | calls/s | CPU-µs a call, least | most | CPU, at 64 = 1 | target |\n|---|---|---|---|---|---|---|\n" .. table.concat(rows))
end
print(("  %.0f s in all"):format((uv.hrtime() - began) / 1e9))
os.exit(true, false)
