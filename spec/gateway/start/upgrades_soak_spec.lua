-- A part of `./dev soak upgrades`: three upgrades under load.
local upgrades = require "spec.soak.upgrades"

describe("upgrades under load", function()
  it("refuse no connection, fail no call, lose no session, and keep one store, quota, job and switch", function()
    local report = upgrades.run { upgrades = 3, seconds = 12, rate = 100, streams = 20, sse = 5, tasks = 5, long = 10 }
    assert.same({}, report.violations, upgrades.describe(report))
    assert.is_true(report.counted > 100)
  end)
end)
