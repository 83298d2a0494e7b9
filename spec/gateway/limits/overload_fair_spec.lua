-- lane: alone
-- Principals that ask one worker for five times as much as it can serve: each gets the same, or what it asks for, whichever
-- is less, within 10 %. Each handler is a fixed amount of work, and what a principal asks for goes by what the worker has
-- served. A burst is served as far as it fits in half of overload.wait: beside other specs the worker is too slow for it.
local gateway = require "spec.helpers.gateway"
local offering = require "spec.helpers.offering"

-- what each principal asks for, as a part of all calls that are served
local PARTS <const> = { 0.05, 0.1, 0.85, 1.5, 2.5 }
local FAIR <const> = 0.1
-- Calls that are served before the measurement begins, and calls until its end. Some hundred calls wait at once: until
-- so many are served, the first callers have more than their share.
local SETTLED <const>, ENOUGH <const> = 500, 2700

-- Calls that a principal with a tenth sends at once: more than its queue takes while each has one turn.
local BURST <const> = 40

-- `bursts`: by principal.
local function expect_fairness(bursts)
  local g <close> = gateway.start {
    workers = 1, config = { overload = { wait = "200ms" }, limits = { calls_in_flight = 10000, request_time = "10m" } },
    scripts = {
      ["auth/main.lua"] = "return auth { function(request) return { id = try(request.bearer, 'no token') } end }",
      ["tools/work.lua"] = [[
return tool { "Computes.", function()
  local from = os.clock()
  while os.clock() - from < 0.0005 do end
  return "done"
end }]],
    },
  }
  local callers = {}
  for i, part in ipairs(PARTS) do
    callers[i] = { free = offering.connect(g.port, "127.0.0." .. i, i < 3 and 100 or 500), name = "principal" .. i, rate = part, burst = bursts[i] }
  end
  local extra = 0
  local results = offering.run(callers, function(so_far, _, open)
    if open == 0 then extra = extra + 10 end -- all further calls were refused, and none is served any more
    return so_far.served + extra
  end, SETTLED, ENOUGH)
  local asks, sum = {}, 0
  for i, result in ipairs(results) do
    asks[i], sum = result.asked, sum + #result.latencies
  end
  for i, share in ipairs(offering.shares(asks, sum)) do
    local got = #results[i].latencies
    assert.is_true(math.abs(got - share) <= FAIR * share,
      ("principal %d asked for %d calls and got %d; its share is %.0f"):format(i, asks[i], got, share))
  end
  for _, caller in ipairs(callers) do offering.close(caller.free) end
  assert.has_nothing_left(g)
end

describe("five principals that ask for five times what a worker can serve", function()
  it("get the same each, or what they ask for if that is less, within 10 %", function() expect_fairness {} end)

  it("get it also where calls of one come in bursts", function() expect_fairness { [2] = BURST } end)
end)
