-- timing.lua: whether the answer for a session of somebody else's can be told by its time from that for one that never was, one that ended,
-- or one that is idle and gone (row B-32). 10,000 tries of each, taking turns; `./dev build` first, then: lua5.4 bench/timing.lua
package.path = "./?.lua;" .. package.path
local uv = require "luv"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local TRIES = tonumber(arg[1]) or 10000
local FAR = 0.02        -- of one half: the chance that a try of one kind takes longer than one of another

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

-- The chance that one of `a` is more than one of `b`, by ranks; ties count half.
local function chance(a, b)
  local all = {}
  for _, value in ipairs(a) do all[#all + 1] = { value, true } end
  for _, value in ipairs(b) do all[#all + 1] = { value, false } end
  table.sort(all, function(x, y) return x[1] < y[1] end)
  local sum, i = 0, 1
  while i <= #all do
    local j = i
    while all[j + 1] and all[j + 1][1] == all[i][1] do j = j + 1 end
    for k = i, j do
      if all[k][2] then sum = sum + (i + j) / 2 end
    end
    i = j + 1
  end
  return (sum - #a * (#a + 1) / 2) / (#a * #b)
end

local function middle(list)
  local sorted = table.move(list, 1, #list, 1, {})
  table.sort(sorted)
  return sorted[#sorted // 2]
end

local g = gateway.start { workers = 1, config = { log = { level = "warn" }, sessions = { idle = "300ms" } },
  scripts = { ["auth/main.lua"] = credentials.script } }
local idle = g:client("2025-11-25", { token = "ann-1" })
g:wait_status(function(status) return status.counters.sessions_closed.idle == 1 end)
local foreign, ended = g:client("2025-11-25", { token = "ann-1" }), g:client("2025-11-25", { token = "ann-1" })
local held = foreign:get_stream()
held:head()
ended:delete()

local kinds = {
  { name = "foreign", id = foreign.session }, { name = "ended", id = ended.session }, { name = "idle", id = idle.session },
  { name = "unknown", id = ("0123456789abcdef"):rep(2) },
}
local connection = g:connect()
for _, kind in ipairs(kinds) do
  kind.times = {}
  kind.request = {
    method = "POST", path = "/mcp", body = [[{"jsonrpc":"2.0","id":1,"method":"ping"}]],
    headers = { Authorization = "Bearer bob-1", ["Mcp-Session-Id"] = kind.id, Accept = wire.both, ["Content-Type"] = "application/json" },
  }
end
for i = 1, TRIES + 200 do
  for step = 1, #kinds do
    local kind = kinds[(i + step) % #kinds + 1]
    local began = uv.hrtime()
    local response = connection:request(kind.request)
    if i > 200 then kind.times[#kind.times + 1] = uv.hrtime() - began end
    assert(response.status == 404, response.body)
  end
end

local told = true
for _, kind in ipairs(kinds) do
  local odds = chance(kind.times, kinds[#kinds].times)
  told = told and math.abs(odds - 0.5) <= FAR
  print(("%-8s median %.1f us, longer than unknown in %.1f %% of pairs"):format(kind.name, middle(kind.times) / 1000, odds * 100))
end
print(told and "they cannot be told apart" or "they can be told apart")
connection:close()
held:close()
g:stop()
os.exit(told and 0 or 1, false)
