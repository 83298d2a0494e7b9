-- setups.lua: what a call to an upstream costs in real set-ups: a client that can be asked, scopes, an audit, a policy, and
-- all of them, as a multiple of the plain forwarded call. bench/upstreams.lua calls it. The servers take turns.
local cjson = require "cjson"
local beneath = require "bench.beneath"
local gateway = require "spec.helpers.gateway"
local under = require "bench.load"

local setups = {}

local CONNECTIONS <const>, WORKERS <const> = 64, 2
local MODERN <const>, LEGACY <const> = "2026-07-28", "2025-11-25"
local TOKEN <const> = ("0123456789abcdef"):rep(3)

local ASKABLE <const> = '{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}}'
local SCOPED <const> = {
  ["auth/main.lua"] = ('return auth.bearer { secret = "%s", scopes = { "search:use" } }'):format(TOKEN),
  ["upstreams/beneath.lua"] = 'return upstream { scopes = { "search:use" } }',
}
local POLICY <const> = { ["policy/all.lua"] = 'return policy { tools = { "*" }, function(call, next) return next(call) end }' }

-- `most`: what the call may cost, where the plain one costs 1.
local WAYS <const> = {
  { name = "plain" },
  { name = "of a client that can be asked", is_askable = true, most = 1.4 },
  { name = "with scopes", is_scoped = true, most = 1.4 },
  { name = "with an audit", has_audit = true, most = 1.4 },
  { name = "through a policy", has_policy = true, most = 1.8 },
  { name = "all of these", is_askable = true, is_scoped = true, has_audit = true, has_policy = true, most = 2.2 },
}

local function start(below, way)
  local scripts = {}
  for path, text in pairs(way.is_scoped and SCOPED or {}) do scripts[path] = text end
  for path, text in pairs(way.has_policy and POLICY or {}) do scripts[path] = text end
  return gateway.start {
    workers = WORKERS, scripts = scripts,
    config = {
      upstreams = { beneath = { url = below.url } }, scripts = { path = "scripts", watch = false },
      log = way.has_audit and { audit = "audit.jsonl" } or nil,
    },
  }
end

local function request_for(g, revision, way)
  local kind = {
    name = revision, tool = "beneath_search", arguments = '{"query":"a text","limit":3}', expect = "0123456789", meta = "",
    headers = { ["mcp-protocol-version"] = revision }, has_session = revision ~= MODERN, capabilities = way.is_askable and cjson.decode(ASKABLE) or nil,
  }
  if revision == MODERN then
    kind.headers["mcp-method"], kind.headers["mcp-name"] = "tools/call", kind.tool
    kind.meta = (',"_meta":{"io.modelcontextprotocol/protocolVersion":"%s","io.modelcontextprotocol/clientCapabilities":%s}'):format(
      MODERN, way.is_askable and ASKABLE or "{}")
  end
  return under.request(g, kind, way.is_scoped and TOKEN or nil)
end

-- The set-ups of one revision, with the middle over the rounds of what a call costs, in microseconds of processor time, and
-- of its multiple of the plain call.
local function measure(revision, rounds, seconds)
  local below = beneath.start(revision, WORKERS)
  local list = {}
  for i, way in ipairs(WAYS) do
    local g = start(below, way)
    list[i] = { name = way.name, revision = revision, most = way.most, g = g, request = request_for(g, revision, way), costs = {}, times = {} }
    under.run(g.port, g.pid, list[i].request, CONNECTIONS, seconds) -- until the quick way has begun in each worker
  end
  for round = 1, rounds do
    for _, one in ipairs(list) do
      one.costs[round] = select(2, under.run(one.g.port, one.g.pid, one.request, CONNECTIONS, seconds))
      one.times[round] = one.costs[round] / list[1].costs[round]
    end
  end
  for _, one in ipairs(list) do
    one.g:stop()
    one.cost, one.times = under.middle(one.costs), under.middle(one.times)
    print(("  %s  %-32s %7.1f CPU-µs  × %.2f%s"):format(revision, one.name, one.cost, one.times, one.most and (" of at most %.1f"):format(one.most) or ""))
  end
  below.stop()
  return list
end

--- Rows { name, revision, cost, times, most } of all set-ups, for clients and upstreams of 2026-07-28 and of 2025-11-25.
function setups.measure(rounds, seconds)
  local rows = measure(MODERN, rounds, seconds)
  for _, row in ipairs(measure(LEGACY, rounds, seconds)) do rows[#rows + 1] = row end
  return rows
end

return setups
