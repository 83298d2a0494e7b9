-- preempt.lua: what preemption and the limits of calls cost where nobody is over them: the binary and one built without them
-- (-DMOONPOOL_PREEMPT=OFF), by turns in one run. Needs wrk, and perf for instructions. `./dev bench preempt` calls it.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"

local ROUNDS <const>, SECONDS <const>, CONNECTIONS <const> = 7, 2, 32
local TICK <const> = 100 -- of /proc/PID/stat, per second

local add = 'return tool { "Add.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }'
local body = cjson.encode { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "add", arguments = { a = 1, b = 2 }, _meta = {
  ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = { [" "] = 1 },
} } }
local headers = "content-type: application/json\naccept: application/json, text/event-stream\nmcp-protocol-version: 2026-07-28\n" ..
  "mcp-method: tools/call\nmcp-name: add"

local function cpu_seconds(pid)
  local file <close> = assert(io.open("/proc/" .. pid .. "/stat"))
  local user, system = file:read("a"):match "%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (user + system) / TICK
end

-- CPU-µs and, where perf may count them, user instructions of one request.
local function load(g)
  local before = cpu_seconds(g.pid)
  local wrk = ("wrk -t1 -c%d -d%ds -s bench/post.lua http://127.0.0.1:%d/mcp"):format(CONNECTIONS, SECONDS, g.port)
  local code, out, err = gateway.run_program("/bin/sh", { "-c",
    ("if command -v perf >/dev/null; then exec perf stat -x, -e instructions:u -p %d -- %s; else exec %s; fi"):format(g.pid, wrk, wrk) },
    { env = { BENCH_BODY = body, BENCH_HEADERS = headers }, seconds = SECONDS + 20 })
  assert(code == 0 and not out:find "Non%-2xx", err .. out)
  local requests = tonumber(out:match "(%d+) requests in")
  local instructions = tonumber(err:match "(%d+),[^\n]*instructions")
  return (cpu_seconds(g.pid) - before) / requests * 1e6, instructions and instructions / requests
end

local function summary(list)
  table.sort(list)
  return list[(#list + 1) // 2], list[1], list[#list]
end

local function start(build)
  gateway.binary = "build/" .. build .. "/moonpool"
  return gateway.start { workers = 1, scripts = { ["tools/add.lua"] = add } }
end

local function show(what, unit, with, without)
  local ratios = {}
  for i = 1, #with do ratios[i] = with[i] / without[i] end
  local ratio, least, most = summary(ratios)
  local a, b = summary(with), summary(without)
  print(("  %-14s with %8.1f   without %8.1f %s   ratio %.3f (%.3f … %.3f)"):format(what, a, b, unit, ratio, least, most))
end

local function measure()
  local with <close> = start "release"
  local without <close> = start "unlimited"
  print(("tools/call of add, one worker, wrk with %d connections; median of %d rounds of %d s, by turns; ratios of pairs, least … most"):format(
    CONNECTIONS, ROUNDS, SECONDS))
  load(with)
  load(without)
  local cpu, counts = { {}, {} }, { {}, {} }
  for round = 1, ROUNDS do
    for i, g in ipairs { with, without } do cpu[i][round], counts[i][round] = load(g) end
  end
  show("CPU", "µs", cpu[1], cpu[2])
  if counts[1][1] and counts[2][1] then
    show("instructions", "", counts[1], counts[2])
  else
    print "  instructions: perf cannot count them here"
  end
end

measure()
os.exit(true, false) -- not by way of the end of luv, which trips over processes that have just ended
