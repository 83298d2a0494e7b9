-- observed.lua: what it costs to be observed: calls of a gateway with metrics beside one with `metrics: off`; with traces configured and no call sampled
-- beside none; with a tap of other calls open beside none. Needs wrk. `./dev bench observed` calls it.
-- The gateways of a pair are loaded by turns, in one run, and which one begins changes from round to round, so that whatever else the machine does hits
-- both alike. The figure is processor time per call, whose inverse is calls per second of a full processor; ratios are of calls per second: above 1 the
-- observed gateway was faster. A third gateway, like the first in everything, shows what is noise.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local lfs = require "lfs"
local load = require "bench.load"

local ROUNDS <const>, SECONDS <const>, CONNECTIONS <const> = 11, 2, 32
local TOKEN <const> = ("o"):rep(32)

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local body = cjson.encode { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "add", arguments = { a = 1, b = 2 }, _meta = {
  ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = { [" "] = 1 },
} } }
local headers = "content-type: application/json\naccept: application/json, text/event-stream\nmcp-protocol-version: 2026-07-28\n" ..
  "mcp-method: tools/call\nmcp-name: add"

local function start(config)
  config = config or {}
  config.admin = { listen = "127.0.0.1:0", tokens = { operate = { bench = TOKEN } } }
  return gateway.start { workers = 1, scripts = { ["tools/add.lua"] = load.add }, config = config }
end

-- Processor microseconds of one call.
local function measure(g)
  local before = load.cpu_seconds(g.pid)
  local script = ("wrk -t1 -c%d -d%ds -s %s/bench/post.lua http://127.0.0.1:%d/mcp"):format(CONNECTIONS, SECONDS, lfs.currentdir(), g.port)
  local code, out, err = gateway.run_program("/bin/sh", { "-euc", script }, { env = { BENCH_BODY = body, BENCH_HEADERS = headers }, seconds = SECONDS + 30 })
  assert(code == 0 and not out:find "Non%-2xx", out .. err)
  return (load.cpu_seconds(g.pid) - before) / tonumber(out:match "(%d+) requests in") * 1e6
end

local function spread(list)
  table.sort(list)
  return list[(#list + 3) // 4], list[(#list + 1) // 2], list[(3 * #list + 1) // 4]
end

local cases = {
  { name = "metrics", budget = "at least 0.99", observed = function() return start() end, plain = function() return start { metrics = "off" } end },
  { name = "traces, unsampled", budget = "at least 0.99",
    observed = function() return start { traces = { otlp = "http://127.0.0.1:1", sample = 0 } } end, plain = function() return start() end },
  { name = "a tap of other calls", budget = "0.99 to 1.01", tap = "/api/tap?tool=none", observed = function() return start() end,
    plain = function() return start() end },
  { name = "noise", budget = "near 1", observed = function() return start() end, plain = function() return start() end },
}

local function run(case)
  local observed <close> = case.observed()
  local plain <close> = case.plain()
  local reader <close> = client.connect(observed, { admin = true })
  if case.tap then
    reader:send { path = case.tap, headers = { Authorization = "Bearer " .. TOKEN } }
    assert(reader:read_head().status == 200)
  end
  measure(observed)
  measure(plain)
  local ratios, of, without = {}, {}, {}
  for round = 1, ROUNDS do
    if round % 2 == 0 then without[round] = measure(plain) end
    of[round] = measure(observed)
    without[round] = without[round] or measure(plain)
    ratios[round] = without[round] / of[round]
  end
  local low, middle, high = spread(ratios)
  print(("  %-22s %6.2f beside %6.2f µs a call   calls per second: ratio %.3f (%.3f … %.3f), wanted %s"):format(
    case.name, select(2, spread(of)), select(2, spread(without)), middle, low, high, case.budget))
end

local wanted = arg[1]
print(("tools/call of add, one worker each, wrk with %d connections; %d rounds of %d s each, by turns; medians (quartiles)"):format(
  CONNECTIONS, ROUNDS, SECONDS))
for _, case in ipairs(cases) do
  if not wanted or case.name:find(wanted, 1, true) then run(case) end
end
