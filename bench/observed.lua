-- observed.lua: what it costs to be observed: calls of a gateway with metrics beside one with `metrics: off`; with
-- traces configured and no call sampled, or every call sampled and a collector that never answers, beside none; with a
-- tap of other calls open, or as many taps as there may be of all calls, beside none. Needs wrk. `./dev bench observed
-- [CASE]` calls it.
-- The gateways of a pair are loaded by turns, in one run, and which one begins changes from round to round, so that
-- whatever else the machine does hits both alike. The figure is processor time per call, whose inverse is calls per
-- second of a full processor; ratios are of calls per second: above 1 the observed gateway was faster. The time below
-- which 99 of 100 calls stay is compared, too. A third gateway, like the first in everything, shows what is noise.
local cjson = require "cjson"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local load = require "bench.load"
local uv = require "luv"

local ROUNDS <const>, SECONDS <const>, CONNECTIONS <const> = 11, 2, 32
local TOKEN <const> = ("o"):rep(32)

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local request = {
  body = cjson.encode { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "add", arguments = { a = 1, b = 2 }, _meta = {
    ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = { [" "] = 1 },
  } } },
  headers = {
    ["content-type"] = "application/json", accept = "application/json, text/event-stream", ["mcp-protocol-version"] = "2026-07-28",
    ["mcp-method"] = "tools/call", ["mcp-name"] = "add",
  },
}

local function start(config, tool)
  config = config or {}
  config.admin = { listen = "127.0.0.1:0", tokens = { operate = { bench = TOKEN } } }
  return gateway.start { workers = 1, scripts = { ["tools/add.lua"] = tool or load.add }, config = config }
end

-- With ten connections, some 2,250 calls a second: below what a worker can do, above what a tap shows.
local slow_add = 'return tool { "Add.", input = { a = t.number, b = t.number }, function(args) sleep(0.004) return args.a + args.b end }'

-- The address of a collector that takes connections and never answers.
local function silent_collector()
  local server, kept = uv.new_tcp(), {}
  assert(server:bind("127.0.0.1", 0))
  assert(server:listen(16, function()
    local one = uv.new_tcp()
    server:accept(one)
    kept[#kept + 1] = one
  end))
  return "http://127.0.0.1:" .. server:getsockname().port
end

-- Processor microseconds of one call, and the p99 of all in microseconds.
local function measure(g, connections)
  local _, cost, latency = load.run(g.port, g.pid, request, connections or CONNECTIONS, SECONDS)
  return cost, latency.p99
end

local function spread(list)
  table.sort(list)
  return list[(#list + 3) // 4], list[(#list + 1) // 2], list[(3 * #list + 1) // 4]
end

local cases = {
  { name = "metrics", budget = "at least 0.99", observed = function() return start() end, plain = function() return start { metrics = "off" } end },
  { name = "traces, unsampled", budget = "at least 0.99",
    observed = function() return start { traces = { otlp = "http://127.0.0.1:1", sample = 0 } } end, plain = function() return start() end },
  { name = "traces, all sampled", budget = "at least 0.85",
    observed = function() return start { traces = { otlp = silent_collector(), sample = 1 } } end, plain = function() return start() end },
  -- where no tap is open, a call asks one counter twice, by a relaxed load; this is the price of a tap that admits none
  -- of the calls
  { name = "a tap of other calls", budget = "near 1", taps = { "/api/tap?tool=none" }, observed = function() return start() end,
    plain = function() return start() end },
  { name = "8 taps", budget = "p99 at most 1.5", taps = { "", "", "", "", "", "", "", "" }, observed = function() return start() end,
    plain = function() return start() end },
  { name = "8 taps, 2,250 calls/s", budget = "p99 at most 1.5", taps = { "", "", "", "", "", "", "", "" }, connections = 10,
    observed = function() return start(nil, slow_add) end, plain = function() return start(nil, slow_add) end },
  { name = "noise", budget = "near 1", observed = function() return start() end, plain = function() return start() end },
}

local function run(case)
  local observed <close> = case.observed()
  local plain <close> = case.plain()
  local readers = {}
  for i, path in ipairs(case.taps or {}) do
    readers[i] = client.connect(observed, { admin = true })
    readers[i]:send { path = path == "" and "/api/tap" or path, headers = { Authorization = "Bearer " .. TOKEN } }
    assert(readers[i]:read_head().status == 200)
  end
  measure(observed, case.connections)
  measure(plain, case.connections)
  local ratios, of, without, slower = {}, {}, {}, {}
  for round = 1, ROUNDS do
    local p99, p99_without
    if round % 2 == 0 then without[round], p99_without = measure(plain, case.connections) end
    of[round], p99 = measure(observed, case.connections)
    if round % 2 == 1 then without[round], p99_without = measure(plain, case.connections) end
    ratios[round], slower[round] = without[round] / of[round], p99 / p99_without
  end
  for _, reader in ipairs(readers) do reader:close() end
  local low, middle, high = spread(ratios)
  print(("  %-22s %6.2f beside %6.2f µs a call   calls per second: ratio %.3f (%.3f … %.3f)   p99: ratio %.2f   wanted: %s"):format(
    case.name, select(2, spread(of)), select(2, spread(without)), middle, low, high, select(2, spread(slower)), case.budget))
end

local wanted = arg[1]
print(("tools/call of add, one worker each, wrk with %d connections; %d rounds of %d s each, by turns; medians (quartiles)"):format(
  CONNECTIONS, ROUNDS, SECONDS))
for _, case in ipairs(cases) do
  if not wanted or case.name:find(wanted, 1, true) then run(case) end
end
os.exit(true, false) -- luv's handles of programs that have ended must not be freed after its loop
