-- cluster.lua: what a request costs that reaches a node which does not have its session, beside nginx as a reverse proxy
-- before the same node; calls of 2026-07-28 on three nodes and on one; operations of the store and limits of three nodes
-- before one server of Redis; and what a quiet stream takes that reaches its session by way of another node.
-- `./dev bench cluster` calls it and writes the section "Several nodes" of docs/benchmarks.md, with the verdicts against
-- the targets. In each round the servers take turns, each after a second in which connections are opened; a figure is the
-- median of the rounds, and a difference is that of two medians. BENCH_QUICK=1: a short run that writes nothing.
local beside = require "bench.beside"
local cluster = require "spec.helpers.cluster"
local gateway = require "spec.helpers.gateway"
local machine = require "bench.machine"
local streams = require "bench.streams"
local under = require "bench.load"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local is_quick = os.getenv "BENCH_QUICK" == "1"
local ROUNDS <const>, SECONDS <const> = is_quick and 1 or 7, is_quick and 1 or 2
local STREAMS <const> = is_quick and 500 or 9000 -- a process here may have 20,000 descriptors, and the node on the way has two for each
local AT_MOST_OF_NGINX <const>, MOST_CPU <const>, LEAST_RATE <const> = 2, 40, 0.97

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local CONFIG <const> = {
  scripts = { path = "scripts", watch = "false" }, overload = { wait = "off" }, limits = { connections = 20000, calls_in_flight = 20000 },
  sessions = { max = 20000, per_principal = 20000 }, heartbeat = "10m", hosts = { "127.0.0.1", "localhost", "beneath" }, -- nginx says "beneath"
}

local scripts = {
  ["tools/add.lua"] = under.add,
  ["tools/get.lua"] = 'return tool { "Reads.", function() return store.get "it" or "nothing" end }',
  ["tools/incr.lua"] = 'return tool { "Counts.", function() return tostring(try(store.incr "count")) end }',
  ["tools/limited.lua"] = 'return tool { "Runs.", function() return "ran" end }',
  ["policy/limited.lua"] = 'return limit { tools = { "limited" }, rate = 1000000, per = 1, burst = 1000000, by = "all" }',
}

local function start_nodes(count, workers, tls)
  return cluster.start { nodes = count, workers = workers, tls = tls, has_no_place = true, scripts = scripts, config = CONFIG }
end

local function kind_of(tool, expect)
  return { name = "2026-07-28", tool = tool, arguments = "{}", expect = expect, meta = under.kinds[1].meta,
    headers = { ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = tool } }
end

-- Lets the servers take turns. `servers`: { name, port, pids, request }; each gets rate, cost and p50, by the number of
-- connections.
local function measure(servers, connections)
  for _, server in ipairs(servers) do server[connections] = { rate = {}, cost = {}, p50 = {} } end
  for round = 1, ROUNDS do
    for _, server in ipairs(servers) do
      local row = server[connections]
      local rate, cost, latencies = under.run(server.port, server.pids, server.request, connections, SECONDS, 1)
      row.rate[round], row.cost[round], row.p50[round] = rate, cost, latencies.p50
    end
  end
  for _, server in ipairs(servers) do
    local row = server[connections]
    row.rate, row.cost, row.p50 = under.middle(row.rate), under.middle(row.cost), under.middle(row.p50)
  end
end

local function verdict(is_met, text) return ("%s %s"):format(text, is_met and "met" or "missed") end

local function say(rows, text, row)
  print("  " .. text)
  rows[#rows + 1] = row
end

-- -- a hop ------------------------------------------------------------------------------------------------------------------

local function hops()
  local plain <close>, owner, edge = start_nodes(2, 1)
  local secret <close>, other_owner, other_edge = start_nodes(2, 1, true)
  local request, other = under.request(owner, under.kinds[2]), under.request(other_owner, under.kinds[2])
  local proxy = assert(beside.nginx(owner.port, 1), "needs nginx")
  local pids = { owner.pid }
  local servers = {
    { name = "the session's node", port = owner.port, pids = pids, request = request },
    { name = "nginx before it", port = proxy.port, pids = { owner.pid, table.unpack(proxy.pids) }, request = request },
    { name = "another node before it", port = edge.port, pids = { owner.pid, edge.pid }, request = request },
    { name = "the same, over TLS", port = other_edge.port, pids = { other_owner.pid, other_edge.pid }, request = other },
  }
  measure(servers, 1)
  measure(servers, 64)
  proxy.stop()
  assert(plain and secret)
  local rows, direct, nginx = {}, servers[1], servers[2]
  for i, server in ipairs(servers) do
    local late, cost = server[1].p50 - direct[1].p50, server[64].cost - direct[64].cost
    local targets = {}
    if i == 3 then
      local times = late / (nginx[1].p50 - direct[1].p50)
      targets[1] = verdict(times <= AT_MOST_OF_NGINX, ("p50 adds %.1f times what nginx adds, ≤ %d"):format(times, AT_MOST_OF_NGINX))
      times = cost / (nginx[64].cost - direct[64].cost)
      targets[2] = verdict(times <= AT_MOST_OF_NGINX, ("CPU %.1f times, ≤ %d"):format(times, AT_MOST_OF_NGINX))
      targets[3] = verdict(cost <= MOST_CPU, ("≤ %d CPU-µs"):format(MOST_CPU))
    end
    local target = table.concat(targets, "; ")
    say(rows, ("%-24s p50 %6.1f µs (+%.1f), %8.0f/s, %6.1f CPU-µs (+%.1f)  %s"):format(server.name, server[1].p50, late, server[64].rate,
      server[64].cost, cost, target),
      ("| %s | %.0f | %.0f | %.0f | %.1f | %.1f | %s |\n"):format(server.name, server[1].p50, late, server[64].rate, server[64].cost, cost, target))
  end
  return "| a call of a session, by way of | p50 µs, 1 connection | adds | calls/s, 64 | CPU-µs a call, all processes | adds | target |\n"
    .. "|---|---|---|---|---|---|---|\n" .. table.concat(rows)
end

-- -- calls without a session ----------------------------------------------------------------------------------------------

local function stateless()
  local alone = gateway.start { workers = 3, scripts = scripts, config = CONFIG }
  local three <close>, one, two, last = start_nodes(3, 1)
  local request = under.request(alone, under.kinds[1])
  local function among(name, ports, pids, of) return { name = name, port = ports, pids = pids, request = of or request } end
  local all, pids = { one.port, two.port, last.port }, { one.pid, two.pid, last.pid }
  local servers = {
    among("one gateway, 3 workers, without `cluster`", { alone.port, alone.port, alone.port }, { alone.pid }),
    among("three nodes, 1 worker each", all, pids),
  }
  measure(servers, 66)
  alone:stop()
  local rows = {}
  for i, server in ipairs(servers) do
    local part = server[66].rate / servers[1][66].rate
    local least = i == 2 and verdict(part >= LEAST_RATE, ("≥ %.2f"):format(LEAST_RATE)) or ""
    say(rows, ("%-44s %8.0f/s, %6.1f CPU-µs, %.2f of the first  %s"):format(server.name, server[66].rate, server[66].cost, part, least),
      ("| %s | %.0f | %.1f | %.2f | %s |\n"):format(server.name, server[66].rate, server[66].cost, part, least))
  end
  local text = "| calls of 2026-07-28, 66 connections | calls/s | CPU-µs a call | of the first | target |\n|---|---|---|---|---|\n" .. table.concat(rows)
  local kinds, shared = { { "`store.get`", "get", "nothing" }, { "`store.incr`", "incr", '"text":"' }, { "`limit`, one bucket", "limited", "ran" } }, {}
  for i, kind in ipairs(kinds) do
    servers[i] = among(kind[1], all, pids, under.request(one, kind_of(kind[2], kind[3])))
    local before, began = under.cpu_seconds(three.server.pid), uv.hrtime()
    measure({ servers[i] }, 66)
    local used = (under.cpu_seconds(three.server.pid) - before) / ((uv.hrtime() - began) / 1e9)
    local row = servers[i][66]
    say(shared, ("%-24s %8.0f/s, %6.1f CPU-µs in the nodes, %.0f %% of a processor in Redis"):format(kind[1], row.rate, row.cost, used * 100),
      ("| %s | %.0f | %.1f | %.0f %% |\n"):format(kind[1], row.rate, row.cost, used * 100))
  end
  return text .. "\n| in each call, on three nodes | calls/s | CPU-µs in the nodes | of one processor, in Redis |\n|---|---|---|---|\n" .. table.concat(shared)
end

-- -- streams ----------------------------------------------------------------------------------------------------------------

local GET <const> = streams.kinds[2]

local function pause(seconds)
  local began = uv.hrtime()
  while (uv.hrtime() - began) / 1e9 < seconds do uv.sleep(20) end
end

-- KB and descriptors of each node for one of STREAMS streams; `edge` is the owner for local ones. `left`: descriptors that
-- are there afterwards.
local function weigh(owner, edge)
  local both = owner == edge and { owner } or { owner, edge }
  local holder = streams.hold(owner, GET, edge ~= owner and edge or nil)
  local function open(more, sum)
    holder.tell("open", more)
    owner:wait_status(function(status) return status.gauges.streams_open >= sum end, 300)
    pause(2)
  end
  local weight, fds_at_rest = {}, {}
  for i, g in ipairs(both) do fds_at_rest[i] = g:fds() end
  open(100, 100)
  for i, g in ipairs(both) do weight[i] = { rss = g:rss(), fds = g:fds() } end
  open(STREAMS - 100, STREAMS)
  for i, g in ipairs(both) do
    weight[i] = { kb = (g:rss() - weight[i].rss) / (STREAMS - 100) / 1024, fds = (g:fds() - weight[i].fds) / (STREAMS - 100) }
  end
  holder.tell("leave", "close")
  holder.tell "end"
  holder.stop()
  weight.left = 0
  for i, g in ipairs(both) do
    g:wait_status(function(status) return status.gauges.hops == 0 and status.gauges.streams_open == 0 end, 300)
    pcall(wait.for_fact, "kept connections to be closed", 30, function() return g:fds() <= fds_at_rest[i] + 2 end)
    weight.left = weight.left + math.max(0, g:fds() - fds_at_rest[i])
  end
  return weight
end

local function quiet_streams()
  local rows = {}
  for _, tls in ipairs { false, true } do
    local c <close>, owner, edge = start_nodes(2, 3, tls)
    local here = tls and { { kb = 0, fds = 0 } } or weigh(owner, owner)
    local there = weigh(owner, edge)
    assert(c)
    local function add(name, kb, fds, left)
      say(rows, ("%-44s %6.1f KB, %.2f descriptors; %d descriptors more afterwards"):format(name, kb, fds, left),
        ("| %s | %.1f | %.1f | %d |\n"):format(name, kb, fds, left))
    end
    local way = tls and " over TLS" or ""
    if not tls then add("a stream at the session's node", here[1].kb, here[1].fds, here.left) end
    add("by way of another node" .. way .. ": there", there[2].kb, there[2].fds, there.left)
    add("by way of another node" .. way .. ": at the session's node", there[1].kb, there[1].fds, there.left)
  end
  return ("| one of %d quiet streams (GET, 2025-11-25) | KB | descriptors | descriptors left, both nodes |\n|---|---|---|---|\n"):format(STREAMS)
    .. table.concat(rows)
end

local about, began = machine.describe(gateway.binary), uv.hrtime()
print(("several nodes; wrk, servers taking turns, medians of %d rounds of %d s"):format(ROUNDS, SECONDS))
local parts = { hops(), stateless(), quiet_streams() }
if not is_quick then
  under.write_section("cluster", "## Several nodes\n\n" .. machine.text(about) .. "\n"
    .. "`./dev bench cluster`: nodes with one worker each, one Redis, wrk, all on the same two cores: medians of "
    .. ("%d rounds of %d s in which the servers take turns, each after a second that does not count.\n\n"):format(ROUNDS, SECONDS) .. table.concat(parts, "\n"))
end
print(("  %.0f s in all"):format((uv.hrtime() - began) / 1e9))
os.exit(true, false)
