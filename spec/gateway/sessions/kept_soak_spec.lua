-- A part of `./dev soak restarts`: a gateway is killed under load, three times.
local restarts = require "spec.soak.restarts"

describe("a gateway that is killed under load", function()
  it("has every session that a client was told of, none that was ended, and tells no event twice", function()
    local report = restarts.run { rounds = 3, sessions = 200 }
    assert.same({}, report.violations, restarts.describe(report))
  end)
end)
