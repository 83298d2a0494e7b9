-- upstreams.lua: what a call to an upstream costs. `./dev bench upstreams` calls it and writes the section "Upstreams"
-- of docs/benchmarks.md, with the verdicts against TARGETS. The upstream is bench/upstream.c with a result of 1 KB; it
-- is called directly, through nginx, and through moonpool with the revisions of client and upstream equal and crossed,
-- with and without a policy; the servers take turns. bench/setups.lua has what real set-ups add. CPU-µs are those of the server between client and upstream.
-- BENCH_QUICK=1: a short run that writes nothing, to try the program.
local uv = require "luv"
local beneath = require "bench.beneath"
local beside = require "bench.beside"
local crowd = require "bench.crowd"
local gateway = require "spec.helpers.gateway"
local machine = require "bench.machine"
local setups = require "bench.setups"
local trusted = require "spec.helpers.trusted"
local under = require "bench.load"
local wait = require "spec.helpers.wait"

local is_quick = os.getenv "BENCH_QUICK" == "1"
local ROUNDS, SECONDS = is_quick and 2 or 5, is_quick and 1 or 2
local CONNECTIONS <const> = { 1, 8, 64 }
local WORKERS <const> = 2
local TOOLS <const>, CHANNELS = 5000, is_quick and 500 or 10000
local HALF <const> = CHANNELS // 2
local SESSIONS <const>, PROGRAMS <const> = is_quick and 20 or 200, 16 -- sessions that each call so many upstreams over stdio
local MODERN <const>, LEGACY <const> = "2026-07-28", "2025-11-25"

local TARGETS <const> = {
  { "added p50 at 1 connection", 150, "µs" }, { "added p99 at 1 connection", nil, "µs" }, { "CPU, nginx = 1, at 64 connections", 2.4, "" },
  { "rate, nginx = 1, at 64 connections", 0.4, "", true },
  { "faithful decode of 100 KB, plain = 1", 1.5, "" }, { "calls a second over stdio", 15000, "", true },
  { "CPU until 5,000 tools are listed", 300, "ms" }, { "CPU of each later page", 1, "ms" }, { "one of many idle channels", 4, "KB" },
  { "p99 of others while one of five hangs, all well = 1", 2, "" }, { "programs at once, limit 64", 64, "" },
}

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local POLICY <const> = { ["policy/all.lua"] = 'return policy { tools = { "*" }, function(call, next) return next(call) end }' }
local META <const> = [[,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}]]

local function start_gateway(entry, scripts, more)
  local config = { upstreams = { beneath = entry }, scripts = { path = "scripts", watch = false } }
  for key, value in pairs(more or {}) do config[key] = value end
  return gateway.start { workers = WORKERS, scripts = scripts or {}, config = config }
end

-- A request of a client of this revision for the gateway; sent once per worker or so, so that the way that is measured
-- has begun.
local function request_for(g, revision, tool)
  local is_modern = revision == MODERN
  local kind = {
    name = revision, tool = tool or "beneath_search", arguments = '{"query":"a text","limit":3}', expect = "0123456789", meta = is_modern and META or "",
    headers = { ["mcp-protocol-version"] = revision }, has_session = not is_modern,
  }
  if is_modern then kind.headers["mcp-method"], kind.headers["mcp-name"] = "tools/call", kind.tool end
  return under.request(g, kind)
end

-- -- calls ---------------------------------------------------------------------------------------------------------------------

local WAYS <const> = {
  { "moonpool, 2026-07-28 to 2026-07-28", MODERN, MODERN }, { "moonpool, 2025-11-25 to 2025-11-25", LEGACY, LEGACY },
  { "moonpool, 2026-07-28 to 2025-11-25", MODERN, LEGACY }, { "the same, 2026-07-28 to 2026-07-28, with a policy", MODERN, MODERN, POLICY },
}

-- A list of { name, [connections] = { rate, cost, p50, p99, rounds = lists of these by round } }.
local function measure_calls()
  local modern, legacy = beneath.start(MODERN, WORKERS), beneath.start(LEGACY, WORKERS)
  local plain = { headers = { ["content-type"] = "application/json" }, body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}' }
  local servers = { { name = "direct", port = modern.port, request = plain, pids = modern.pid } }
  local proxy = beside.nginx(modern.port, WORKERS)
  if proxy then servers[#servers + 1] = { name = "nginx, proxy_pass", port = proxy.port, request = plain, pids = proxy.pids } end
  local running = {}
  for _, way in ipairs(WAYS) do
    local g = start_gateway({ url = (way[3] == MODERN and modern or legacy).url }, way[4])
    running[#running + 1] = g
    servers[#servers + 1] = { name = way[1], port = g.port, pids = g.pid, request = request_for(g, way[2]) }
  end
  for _, server in ipairs(servers) do
    for _, connections in ipairs(CONNECTIONS) do server[connections] = { rate = {}, cost = {}, p50 = {}, p99 = {} } end
  end
  for _, connections in ipairs(CONNECTIONS) do
    for _ = 1, ROUNDS do
      for _, server in ipairs(servers) do
        local rate, cost, latency = under.run(server.port, server.pids, server.request, connections, SECONDS)
        for key, value in pairs { rate = rate, cost = cost, p50 = latency.p50, p99 = latency.p99 } do table.insert(server[connections][key], value) end
      end
    end
    for _, server in ipairs(servers) do
      local row = { rounds = server[connections] }
      for key, list in pairs(row.rounds) do row[key] = under.middle(table.move(list, 1, #list, 1, {})) end
      server[connections] = row
      print(("  %3d connections  %-52s %8.0f/s  %7.1f CPU-µs  p50 %6.0f µs  p99 %6.0f µs"):format(
        connections, server.name, row.rate, row.cost, row.p50, row.p99))
    end
  end
  for _, g in ipairs(running) do g:stop() end
  if proxy then proxy.stop() end
  modern.stop()
  legacy.stop()
  return servers
end

local function measure_stdio()
  local folder = beneath.folder(MODERN)
  local g = start_gateway { command = beneath.command(folder) }
  local rates, request = {}, request_for(g, MODERN)
  for round = 1, ROUNDS do rates[round] = under.run(g.port, g.pid, request, 64, SECONDS) end
  g:stop()
  beneath.remove(folder)
  return under.middle(rates)
end

-- -- lists and memory ------------------------------------------------------------------------------------------------------------

-- Milliseconds of processor time that a gateway has used when a client has the first page of the list and all workers
-- have its things, and of each later page, which is made then; the number of pages. The middle of several gateways.
local function measure_lists()
  local below = beneath.start(MODERN, 1, TOOLS)
  local first, later, pages = {}, {}, 0
  for round = 1, ROUNDS do
    local g = start_gateway({ url = below.url, list_wait = "60s" })
    local c = g:client(MODERN)
    local cursor = c:result("tools/list", {}, 60).nextCursor
    local at = under.cpu_seconds(g.pid)
    for _ = 1, 50 do -- until the other worker has made its things, too
      wait.quietly(0.1)
      local now = under.cpu_seconds(g.pid)
      if now - at < 0.002 then break end
      at = now
    end
    at, pages = under.cpu_seconds(g.pid), 1
    first[round] = at * 1e3
    while cursor do
      cursor, pages = c:result("tools/list", { cursor = cursor }, 60).nextCursor, pages + 1
    end
    later[round] = (under.cpu_seconds(g.pid) - at) * 1e3 / (pages - 1)
    c:close()
    g:stop()
  end
  below.stop()
  return under.middle(first), under.middle(later), pages
end

local DECODE <const> = [[
  local json = require "moonpool.json"
  local list = {}
  for i = 1, 1000 do list[i] = { id = i, name = "item " .. i, price = i + 0.25, tags = { "a", "b" }, text = ("x"):rep(20) } end
  local text = json.encode(list)
  local function time(f)
    local least = math.huge
    for _ = 1, 15 do
      local began = host.time.now()
      f(text)
      least = math.min(least, host.time.now() - began)
    end
    return least
  end
  return { #text, time(json.decode), time(json.preserving) }]]

local function measure_decode()
  local g = trusted.start { workers = 1, config = { limits = { call = { time = "60s" } } } }
  local found = trusted.run(g:client(MODERN), DECODE, 60)
  g:stop()
  return found[3] / found[2], found[1]
end

-- KB of memory for each idle channel: a session of a client with a channel of its own, less a session without one. The
-- first half of them is not counted:
-- what the gateway loads and allocates once is not theirs.
local function measure_channels()
  local below = beneath.start(LEGACY, 1)
  local limits, sessions = { upstreams = { channels = CHANNELS + 100 } }, { max = 2 * CHANNELS, per_principal = CHANNELS + 100 }
  local function grown(calls)
    local g = start_gateway({ url = below.url }, { ["tools/own.lua"] = 'return tool { "Own.", function() return "own" end }' },
      { limits = limits, sessions = sessions })
    local before
    for i = 0, CHANNELS do
      local c = g:client(LEGACY)
      c:result("tools/call", { name = calls and "beneath_search" or "own", arguments = {} })
      c.kept:close() -- the session goes on
      if i == HALF then before = g:rss() end
    end
    local more = g:rss() - before
    g:stop()
    return more
  end
  local without = grown(false)
  local kb = (grown(true) - without) / (CHANNELS - HALF) / 1024
  below.stop()
  return kb
end

-- -- the report -----------------------------------------------------------------------------------------------------------------

local function thousands(n)
  local text = ("%.0f"):format(n)
  repeat
    local count
    text, count = text:gsub("^(%d+)(%d%d%d)", "%1,%2")
  until count == 0
  return text
end

local function verdicts_of(values)
  local rows = {}
  for i, target in ipairs(TARGETS) do
    local value = values[i]
    local is_met = value and target[2] and (target[4] and value >= target[2] or not target[4] and value <= target[2])
    rows[i] = { target[1], value, target, value == nil and "not measured" or not target[2] and "" or is_met and "met" or "missed" }
  end
  return rows
end

local shown
function shown(value, unit)
  if value == nil then return "" end
  if value < 0 then return "-" .. shown(-value, unit) end
  return (value >= 1000 and thousands(value) or ("%.3g"):format(value)) .. (unit ~= "" and " " .. unit or "")
end

-- A target as text: "≤ 150 µs".
local function bound_of(target) return target[2] and (target[4] and "≥ " or "≤ ") .. shown(target[2], target[3]) or "" end

local function section_of(servers, real, rows, about, notes)
  local out = {
    "## Upstreams\n\n", machine.text(about), "\n",
    "`./dev bench upstreams`: calls of a tool of an upstream with a result of 1 KB ([bench/upstream.c](../bench/upstream.c), libh2o), ",
    ("medians of %d rounds of %d s in which the servers take turns. "):format(ROUNDS, SECONDS),
    "CPU is that of the server between wrk and the upstream; of the upstream itself in the rows \"direct\".\n\n",
    "| connections | way | calls/s | CPU-µs a call | p50 | p99 |\n|---|---|---|---|---|---|\n",
  }
  for _, connections in ipairs(CONNECTIONS) do
    for _, server in ipairs(servers) do
      local row = server[connections]
      out[#out + 1] = ("| %d | %s | %s | %.1f | %.0f µs | %.0f µs |\n"):format(
        connections, server.name, thousands(row.rate), row.cost, row.p50, row.p99)
    end
  end
  out[#out + 1] = "\nWhat real set-ups cost, at 64 connections; \"times\" is the middle, over the rounds, of multiples of the plain call:\n\n"
    .. "| client and upstream | set-up | CPU-µs a call | times | at most | |\n|---|---|---|---|---|---|\n"
  for _, row in ipairs(real) do
    out[#out + 1] = ("| %s | %s | %.1f | %.2f | %s | %s |\n"):format(
      row.revision, row.name, row.cost, row.times,
      row.most and ("%.1f"):format(row.most) or "", row.most and (row.times <= row.most and "met" or "missed") or "")
  end
  out[#out + 1] = ("\n| what | measured | target | |\n|---|---|---|---|\n")
  for _, row in ipairs(rows) do
    out[#out + 1] = ("| %s | %s | %s | %s |\n"):format(row[1], shown(row[2], row[3][3]), bound_of(row[3]), row[4])
  end
  out[#out + 1] = "\n" .. notes .. "\n"
  return table.concat(out)
end

-- The middle, over the rounds, of f(one's value, the other's value): what disturbs a whole round disturbs both.
local function paired(one, other, connections, key, f)
  if not other then return nil end
  local list = {}
  for round, value in ipairs(one[connections].rounds[key]) do list[round] = f(value, other[connections].rounds[key][round]) end
  return under.middle(list)
end

local function less(a, b) return a - b end
local function times(a, b) return a / b end

local about, began = machine.describe(gateway.binary), uv.hrtime()
print(("tools/call of an upstream; %d workers, wrk, servers taking turns, middle of %d rounds of %d s"):format(WORKERS, ROUNDS, SECONDS))
local servers = measure_calls()
local by_name = {}
for _, server in ipairs(servers) do by_name[server.name] = server end
local direct, proxy, ours = by_name.direct, by_name["nginx, proxy_pass"], by_name[WAYS[1][1]]
local real = setups.measure(ROUNDS, SECONDS)
local rate = measure_stdio()
print(("  stdio                %.0f calls/s"):format(rate))
local ratio, size = measure_decode()
print(("  faithful decode      %.2f times a plain one, of %.0f KB"):format(ratio, size / 1024))
local first, later, pages = measure_lists()
print(("  %d tools           %.1f CPU-ms until they are listed, later pages %.2f ms"):format(TOOLS, first, later))
local kb = measure_channels()
print(("  idle channels        %.2f KB each, of %d"):format(kb, CHANNELS))
local p99 = crowd.hang(ROUNDS, SECONDS, request_for)
local hung = {}
for round, value in ipairs(p99.hung) do hung[round] = value / p99.well[round] end
print(("  one of five hangs    p99 of another %.0f µs, %.0f µs with all well"):format(under.middle(p99.hung), under.middle(p99.well)))
local programs = crowd.programs(SESSIONS, PROGRAMS)
print(("  %d sessions x %d   %d programs at once, %d calls answered, %d busy"):format(SESSIONS, PROGRAMS, programs.most, programs.ok, programs.busy))
local rows = verdicts_of {
  paired(ours, direct, 1, "p50", less), paired(ours, direct, 1, "p99", less), paired(ours, proxy, 64, "cost", times), paired(ours, proxy, 64, "rate", times),
  ratio, rate, first, later, kb, under.middle(hung), programs.most,
}
for _, row in ipairs(rows) do
  print(("  %-52s %12s   target %-12s %s"):format(row[1], shown(row[2], row[3][3]), bound_of(row[3]), row[4]))
end
local notes = ("The list has %d pages; the CPU until it is there is that of the whole process from its start, with %d workers. %s channels are idle. "
  .. "%d sessions with programs of their own call %d upstreams over stdio, all at once: %s calls were answered, %s refused as busy, which were "
  .. "not run."):format(
  pages, WORKERS, thousands(CHANNELS), SESSIONS, PROGRAMS, thousands(programs.ok), thousands(programs.busy))
if not is_quick then
  under.write_section("upstreams", section_of(servers, real, rows, about, notes))
end
print(("  %.0f s in all"):format((uv.hrtime() - began) / 1e9))
os.exit(true, false)
