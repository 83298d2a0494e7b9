-- bench.lua: what a call, an idle stream and a start cost, beside bare libh2o and nginx with a hand-written Lua
-- endpoint in one run.
-- `./dev bench` calls it and writes docs/benchmarks.md and docs/benchmarks.svg; `./dev bench calls` prints calls alone,
-- `./dev bench start` the start and the idle memory.
-- Ratios count; absolute figures are this machine's, today's. BENCH_QUICK=1: a short run, to try the program.
local uv = require "luv"
local beside = require "bench.beside"
local gateway = require "spec.helpers.gateway"
local machine = require "bench.machine"
local nginx = require "bench.peers.nginx"
local under = require "bench.load"
local report = require "bench.report"
local streams = require "bench.streams"

local is_quick = os.getenv "BENCH_QUICK" == "1"
local ROUNDS, SECONDS, STARTS = tonumber(os.getenv "BENCH_ROUNDS" or "") or (is_quick and 1 or 9), is_quick and 1 or 2, is_quick and 3 or 15
local STREAMS = is_quick and 1000 or 9000
local CONNECTIONS = { 1, 16, 64, 256 }
local WORKERS = 2
local NAMES <const> = { "bare libh2o", "moonpool", "nginx + Lua" }

local middle = under.middle

-- { port, pids, stop } of nginx with a hand-written endpoint, or nil where it is not installed.
local function start_nginx()
  local missing = nginx.missing()
  if missing then
    print("  nginx + Lua is left out: " .. missing)
    return nil
  end
  return nginx.start(WORKERS)
end

-- One row of a comparison: { rate, cost, p50, p99, of_bare, of_nginx } of each server, the middle of ROUNDS rounds in
-- which they take turns. of_bare and of_nginx are the middle of the ratios of each round: what the machine does
-- meanwhile hits neighbours alike, but not the first round and the last.
local function compare(servers, request_of, connections, rounds, seconds)
  local rows = {}
  for name in pairs(servers) do rows[name] = { rate = {}, cost = {}, p50 = {}, p99 = {}, of_bare = {}, of_nginx = {} } end
  for round = 1, rounds do
    for turn = 1, #NAMES do
      local name = NAMES[(round + turn) % #NAMES + 1]
      local server, row = servers[name], rows[name]
      if server then
        local rate, cost, latency = under.run(server.port, server.pids, request_of(name), connections, seconds)
        for key, value in pairs { rate = rate, cost = cost, p50 = latency.p50, p99 = latency.p99 } do table.insert(row[key], value) end
      end
    end
    for _, row in pairs(rows) do
      table.insert(row.of_bare, row.cost[round] / rows["bare libh2o"].cost[round])
      table.insert(row.of_nginx, rows["nginx + Lua"] and row.cost[round] / rows["nginx + Lua"].cost[round] or 0 / 0)
    end
  end
  for _, row in pairs(rows) do
    for key, list in pairs(row) do row[key] = middle(list) end
  end
  return rows
end

local function print_rows(rows, connections)
  for _, name in ipairs(NAMES) do
    local row = rows[name]
    if row then
      print(("    %3d connections  %-12s %7.0f/s  %6.2f CPU-s per 100,000  p50 %6.0f µs  p99 %6.0f µs  CPU %.2f x bare, %.2f x nginx + Lua"):format(
        connections, name, row.rate, row.cost / 10, row.p50, row.p99, row.of_bare, row.of_nginx))
    end
  end
end

local titles = { "`add(a, b)`, 2026-07-28", "`add(a, b)` in a session, 2025-11-25", "`echo` of 44 bytes, 2026-07-28" }
local shorts = { "add", "add, session", "echo" }

-- A list of { title, short, points = { { connections, rows } } }.
local function measure_calls()
  print(("tools/call; %d workers, wrk, servers taking turns, middle of %d rounds of %d s"):format(WORKERS, ROUNDS, SECONDS))
  local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = under.add, ["tools/echo.lua"] = under.echo } }
  local other = start_nginx()
  local comparisons = {}
  for i, kind in ipairs { under.kinds[1], under.kinds[2], under.echo_kind } do
    local request = under.request(g, kind)
    local to_nginx = { headers = {}, body = request.body }
    for name, value in pairs(request.headers) do to_nginx.headers[name] = name == "mcp-session-id" and nginx.SESSION or value end
    local bare = beside.bare(request.answer, WORKERS)
    local servers = { ["bare libh2o"] = { port = bare.port, pids = bare.pids }, moonpool = { port = g.port, pids = g.pid }, ["nginx + Lua"] = other }
    local function request_of(name) return name == "nginx + Lua" and to_nginx or request end
    print(("  %s, %s"):format(kind.tool, kind.headers["mcp-protocol-version"]))
    local points = {}
    for _, connections in ipairs(i == 1 and CONNECTIONS or { 64 }) do
      local rows = compare(servers, request_of, connections, ROUNDS, SECONDS)
      print_rows(rows, connections)
      points[#points + 1] = { connections = connections, rows = rows }
    end
    comparisons[i] = { title = titles[i], short = shorts[i], points = points }
    bare.stop()
  end
  if other then other.stop() end
  return comparisons
end

local function measure_streams()
  local rows = {}
  for _, departure in ipairs(streams.departures) do
    for _, kind in ipairs(streams.kinds) do
      local row = streams.measure(kind, STREAMS, departure)
      row.name, row.departure = kind.name, departure.name
      rows[#rows + 1] = row
      streams.print(kind, departure, row)
    end
  end
  return rows
end

-- Calls without reloads, then with a reload every second, of as many connections.
local function measure_reload()
  local seconds, connections, count = is_quick and 3 or 10, 64, 0
  local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = under.add } }
  local request = under.request(g, under.kinds[1])
  local function run()
    local rate, _, latency = under.run(g.port, g.pid, request, connections, seconds)
    return { rate = rate, p99 = latency.p99 }
  end
  local still = run()
  local timer = uv.new_timer()
  timer:start(1000, 1000, function()
    count = count + 1
    local file = assert(io.open(g.dir .. "/scripts/tools/add.lua", "w"))
    file:write(under.add, "\n-- ", count)
    file:close()
    uv.kill(g.pid, "sighup")
  end)
  local reloading = run()
  timer:close()
  local reloads = g:status().scripts.generation - 1
  print(("reload under load        p99 %.0f µs without, %.0f µs with %d reloads"):format(still.p99, reloading.p99, reloads))
  return { seconds = seconds, connections = connections, count = reloads, still = still, reloading = reloading }
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
  return middle(times)
end

-- MB of a gateway of two tools that has answered a call and rests: resident, and of these its own, in no file.
local function measure_idle()
  local all, own = {}, {}
  for round = 1, 3 do
    local g <close> = gateway.start { workers = WORKERS, scripts = { ["tools/add.lua"] = under.add, ["tools/echo.lua"] = under.echo } }
    assert(g:client "2026-07-28":call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }))
    uv.sleep(1000)
    all[round], own[round] = g:rss() / 1e6, g:rss "RssAnon" / 1e6
  end
  print(("idle memory              %.1f MB resident, %.1f MB of them its own (median of 3)"):format(middle(all), middle(own)))
  return { all = middle(all), own = middle(own) }
end

local shapes = {
  positional = "`tools/call` of a function with annotated parameters", table = "of `tool { … }`", call = "whose handler takes `call`",
  text = "that returns a text", session = "of a session, 2025-11-25", structured = "with structured output", nested = "with an object in its arguments",
  refused = "with a wrong argument", list = "`tools/list`", read = "`resources/read` of a fixed text", made = "of a text that a function makes",
}

-- A list of { name, count, text }, by bench/instructions.lua.
local function measure_instructions()
  local path = os.tmpname()
  local args = { "bench/instructions.lua" }
  if is_quick then args[2], args[3] = "positional", "list" end
  local code, out, err = gateway.run_program("/usr/bin/lua5.4", args, { env = { BENCH_INSTRUCTIONS = path, MOONPOOL = gateway.binary }, seconds = 600 })
  assert(code == 0, out .. err)
  io.write(out)
  local rows = {}
  for name, count in under.read(path):gmatch "(%S+) (%d+)\n" do
    if shapes[name] then rows[#rows + 1] = { name = name, count = tonumber(count), text = shapes[name] } end
  end
  os.remove(path)
  return rows
end

gateway.binary = "build/release/moonpool"
if arg[1] == "start" then
  measure_start()
  measure_idle()
  os.exit(true, false)
end
if arg[1] == "calls" then
  measure_calls()
  os.exit(true, false)
end
local figures = { workers = WORKERS, rounds = ROUNDS, seconds = SECONDS, stream_count = STREAMS, starts = STARTS, machine = machine.describe(gateway.binary) }
figures.start_ms = measure_start()
figures.idle = measure_idle()
figures.comparisons = measure_calls()
figures.reload = measure_reload()
print(("%d quiet streams of each kind"):format(STREAMS))
figures.streams = measure_streams()
figures.instructions = measure_instructions()
figures.binary = #under.read "build/release/moonpool"
print(("binary                   %.2f MB"):format(figures.binary / 1e6))
report.write(figures)
print "docs/benchmarks.md and docs/benchmarks.svg are written"
os.exit(true) -- without taking apart what the event loop still has
