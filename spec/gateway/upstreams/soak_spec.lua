-- lane: first
-- Half a minute of `./dev soak`: upstreams of all kinds that are killed, stopped, silent and wrong, and a gateway that
-- is killed, under load.
local soak = require "spec.soak.soak"

describe("a gateway whose upstreams and which itself are killed under load", function()
  it("gives each call one honest outcome, and leaves no gauge, process or descriptor", function()
    local report = soak.run { seconds = 24, kill_every = 8, rate = 40, every = 1, wrong = 0.02 }
    assert.same({}, report.violations, soak.describe(report))
    assert.equal(3, report.life)
    assert.is_true((report.counts.outcomes.ok or 0) > 0)
  end)
end)
