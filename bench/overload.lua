-- overload.lua: what clients see at once and at three times the calls that one worker can serve, and what each of five
-- principals, of which a script decides and which have an address each, gets at five times of them: `./dev bench
-- overload [SECONDS [MS]]`. Calls are sent when they are due, whether those before have been answered or not. The handler
-- computes for MS milliseconds (0.3: it is shorter than a time slice; longer ones are preempted, see
-- docs/explanation/limits.md). Ends with 1 if at three times the capacity the 99th percentile of the calls that are
-- served is above twice that at capacity, or that of the refused ones above 50 ms, or a refusal has no Retry-After; or if
-- a principal gets 10 % more or less than its share, which is what it asks for where that is less than the others get.
local gateway = require "spec.helpers.gateway"
local offering = require "spec.helpers.offering"

local SECONDS <const> = tonumber(arg[1]) or 10
local HANDLER_S <const> = (tonumber(arg[2]) or 0.3) / 1000
local CONNECTIONS <const> = 2000
local REFUSED_MS <const> = 50
local PARTS <const> = { 0.05, 0.2, 0.75, 1.5, 2.5 } -- of the capacity: what each principal asks for, in ascending order
local FAIR <const> = 0.1 -- how far what a principal gets may be from its share

gateway.binary = os.getenv "MOONPOOL" or "build/release/moonpool"

local scripts = {
  ["tools/work.lua"] = ([[
return tool { "Computes.", function()
  local from = os.clock()
  while os.clock() - from < HANDLER_S do end
  return "done"
end }]]):gsub("HANDLER_S", HANDLER_S),
}

local function percentile(list, part)
  table.sort(list)
  return list[math.max(1, math.ceil(#list * part))] or 0
end

-- Sends for each of `callers` its `rate` of calls a second; returns what came back for each in the second half of the
-- time, when the gateway has settled.
local function offer_all(callers, seconds)
  local results = offering.run(callers, function(_, ms) return ms / 1000 end, seconds / 2, seconds, 1000)
  for i, result in ipairs(results) do
    result.rate, result.served, result.refused = callers[i].rate, #result.latencies / (seconds / 2), #result.refusals / (seconds / 2)
    result.p50, result.p99 = percentile(result.latencies, 0.5), percentile(result.latencies, 0.99)
    result.refused_p99 = percentile(result.refusals, 0.99)
  end
  return results
end

local function offer(free, rate, seconds) return offer_all({ { free = free, rate = rate } }, seconds)[1] end

local function show(name, r)
  print(("%-14s %7.0f calls/s offered  %7.0f served, p50 %6.1f ms, p99 %6.1f ms  %7.0f refused, p99 %6.1f ms  %d not sent"):format(
    name, r.rate, r.served, r.p50, r.p99, r.refused, r.refused_p99, r.unsent))
end

local function start(files)
  return gateway.start { workers = 1, scripts = files, config = {
    overload = { wait = "200ms" }, limits = { calls_in_flight = 10000, request_time = "10m" } } }
end

-- What the gateway serves when there is always something to serve.
local function capacity_of(g, caller)
  caller.rate = math.min(6000, 4 / HANDLER_S)
  local capacity = offer_all({ caller }, SECONDS)[1].served
  assert(capacity > 0.1 / HANDLER_S, "this machine is too busy to measure anything")
  g:wait_log("worker no longer overloaded", nil, 60)
  return capacity
end

local function stop(g, ...)
  for _, free in ipairs { ... } do offering.close(free) end
  g:kill()
end

local function measure_all()
  local g = start(scripts)
  local free = offering.connect(g.port, "127.0.0.1", CONNECTIONS)
  local capacity = capacity_of(g, { free = free })
  local once = offer(free, capacity, SECONDS)
  local thrice = offer(free, 3 * capacity, SECONDS)
  stop(g, free)
  show("capacity", once)
  show("3 × capacity", thrice)
  return thrice.p99 <= 2 * once.p99 and thrice.refused_p99 <= REFUSED_MS and thrice.without == 0
end

-- Principals that ask for different parts of the capacity, five times of it together.
local function measure_principals()
  local files = { ["auth/main.lua"] = "return auth { function(request) return { id = try(request.bearer, 'no token') } end }" }
  for path, text in pairs(scripts) do files[path] = text end
  local g = start(files)
  local callers, lists, asks, sum, is_good = {}, {}, {}, 0, true
  for i in ipairs(PARTS) do
    lists[i] = offering.connect(g.port, "127.0.0." .. i, CONNECTIONS // 2)
    callers[i] = { free = lists[i], name = "principal" .. i }
  end
  local capacity = capacity_of(g, callers[#PARTS])
  for i, part in ipairs(PARTS) do callers[i].rate = part * capacity end
  local results = offer_all(callers, SECONDS)
  stop(g, table.unpack(lists))
  for i, result in ipairs(results) do
    asks[i] = result.asked / (SECONDS / 2)
    sum = sum + result.served
  end
  local shares = offering.shares(asks, sum)
  for i, result in ipairs(results) do
    local is_fair = math.abs(result.served - shares[i]) <= FAIR * shares[i]
    is_good = is_good and is_fair
    show(callers[i].name, result)
    print(("%-14s %7.0f calls/s are its share%s"):format("", shares[i], is_fair and "" or ": not fair"))
  end
  return is_good
end

local is_good = measure_all()
is_good = measure_principals() and is_good
print(is_good and "as promised" or "not as promised")
os.exit(is_good and 0 or 1)
