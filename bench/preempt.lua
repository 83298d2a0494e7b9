-- preempt.lua: what preemption and the limits of calls cost where nobody is over them: the binary, and one that was
-- built without them (-DMOONPOOL_PREEMPT=OFF). Needs wrk, and perf for instructions. `./dev bench preempt` calls it.
-- Two are loaded at once and share one processor, so that whatever else the machine does hits both alike: the one with
-- and one without, and by turns with that two without, which shows what is noise. Alarms count double here: each has
-- half a processor.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local lfs = require "lfs"

local ROUNDS <const>, SECONDS <const>, CONNECTIONS <const> = 11, 3, 32

local add = 'return tool { "Add.", input = { a = t.number, b = t.number }, function(args) return args.a + args.b end }'
local body = cjson.encode { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "add", arguments = { a = 1, b = 2 }, _meta = {
  ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = { [" "] = 1 },
} } }
local headers = "content-type: application/json\naccept: application/json, text/event-stream\nmcp-protocol-version: 2026-07-28\n" ..
  "mcp-method: tools/call\nmcp-name: add"

-- Seconds that all its threads ran.
local function cpu_seconds(pid)
  local sum, tasks = 0, "/proc/" .. pid .. "/task/"
  for id in lfs.dir(tasks) do
    local file <close> = io.open(tasks .. id .. "/schedstat")
    if file then sum = sum + file:read "n" / 1e9 end
  end
  return sum
end

local function shell(script, env)
  local code, out, err = gateway.run_program("/bin/sh", { "-euc", script }, { env = env, seconds = SECONDS + 20 })
  assert(code == 0, err .. out)
  return out
end

local has_perf = os.execute "perf stat -x, -e instructions:u true 2>&1 | grep -q '^[0-9]'"

-- Loads all of `list` for a while: of each the CPU-µs, and where perf may count them the user instructions, of a
-- request.
local function load(list)
  local before, script = {}, { "cd $(mktemp -d)\n" }
  for i, g in ipairs(list) do
    before[i] = cpu_seconds(g.pid)
    local perf = has_perf and ("perf stat -x, -o perf%d -e instructions:u -p %d -- "):format(i, g.pid) or ""
    script[i + 1] = ("%swrk -t1 -c%d -d%ds -s %s/bench/post.lua http://127.0.0.1:%d/mcp >wrk%d &\n"):format(
      perf, CONNECTIONS, SECONDS, lfs.currentdir(), g.port, i)
  end
  local out = shell(table.concat(script) .. "wait; for i in $(seq " .. #list .. "); do cat wrk$i; touch perf$i; cat perf$i; echo END; done; rm -r $PWD",
    { BENCH_BODY = body, BENCH_HEADERS = headers })
  local found, i = {}, 0
  for part in out:gmatch "(.-)END\n" do
    i = i + 1
    local requests, instructions = tonumber(part:match "(%d+) requests in"), tonumber(part:match "(%d+),[^\n]*instructions")
    assert(requests and not part:find "Non%-2xx", part)
    found[i] = { us = (cpu_seconds(list[i].pid) - before[i]) / requests * 1e6, instructions = instructions and instructions / requests }
  end
  return found
end

local function start(build)
  gateway.binary = "build/" .. build .. "/moonpool"
  local g = gateway.start { workers = 1, scripts = { ["tools/add.lua"] = add } }
  shell("taskset -acp 0 " .. g.pid)
  return g
end

-- Least, quarter, middle, three quarters, most.
local function spread(list)
  table.sort(list)
  local at = {}
  for i, part in ipairs { 0, 0.25, 0.5, 0.75, 1 } do at[i] = list[1 + math.floor(part * (#list - 1) + 0.5)] end
  return at
end

local function show(what, unit, of, rounds)
  local values, ratios, noise = { {}, {} }, {}, {}
  for n, round in ipairs(rounds) do
    for i = 1, 2 do values[i][n] = round.real[i][of] end
    ratios[n], noise[n] = round.real[1][of] / round.real[2][of], round.noise[1][of] / round.noise[2][of]
  end
  local r, o = spread(ratios), spread(noise)
  print(("  %-12s  with %8.1f   without %8.1f %s   ratio %.3f (%.3f … %.3f)   of noise %.3f (%.3f … %.3f)"):format(
    what, spread(values[1])[3], spread(values[2])[3], unit, r[3], r[2], r[4], o[3], o[2], o[4]))
end

local function measure()
  local with <close> = start "release"
  local without <close> = start "unlimited"
  local again <close> = start "unlimited"
  print(("tools/call of add, one worker each, wrk with %d connections; %d rounds of %d s, two at once; ratios: median (quartiles)"):format(
    CONNECTIONS, ROUNDS, SECONDS))
  local rounds = {}
  load { with, without, again }
  for round = 1, ROUNDS do rounds[round] = { real = load { with, without }, noise = load { again, without } } end
  show("CPU", "µs", "us", rounds)
  if rounds[1].real[1].instructions then
    show("instructions", "", "instructions", rounds)
  else
    print "  instructions: perf cannot count them here"
  end
end

measure()
os.exit(true, false) -- not by way of the end of luv, which trips over processes that have just ended
