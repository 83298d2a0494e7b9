-- Disconnects are detected every time, also by a gateway that gets hardly any processor time.
local affinity = require "spec.helpers.affinity"
local gateway = require "spec.helpers.gateway"
local departures = require "spec.helpers.departures"

local ROUNDS = 30
local QUIET = 100 -- streams of each kind, in every round

local function run_rounds(g)
  for round = 1, ROUNDS do
    local where = "round " .. round
    assert.same({ FIN = 404, RST = 404 }, departures.leave_sessions(g, { "FIN", "RST" }, departures.PROMISE), where)
    assert.equal(404, departures.kill_client(g, 4, 16 * 1024, true), where)
    departures.leave_quiet_streams(g, QUIET)
    assert.has_nothing_left(g)
  end
  departures.assert_calm(g)
end

describe("B-04 thirty rounds of B-01, B-02 and B-03", function()
  it("have the same result each time", function()
    local g <close> = gateway.start { config = departures.config, scripts = departures.scripts }
    run_rounds(g)
    assert.has_nothing_left(g)
  end)

  it("have the same result on one core shared with a busy process", function()
    local core = affinity.first_core()
    local g <close> = gateway.start { config = departures.config, scripts = departures.scripts }
    assert.equal(0, (gateway.run_program("/usr/bin/taskset", { "-a", "-c", "-p", core, tostring(g.pid) })))
    local hog <close> = affinity.hog(core)
    run_rounds(g)
    hog:kill()
    assert.has_nothing_left(g)
  end)
end)
