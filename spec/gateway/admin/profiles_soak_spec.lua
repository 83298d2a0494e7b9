-- lane: alone
-- A part of `./dev soak profiles`: profiles of a second under load, beside processes that want all processors.
local profiles = require "spec.soak.profiles"

describe("profiles beside busy processes", function()
  it("end no call", function()
    local report = profiles.run { profiles = 5 }
    assert.same({ 0, 0 }, { report.ended, report.aborted }, report.why)
    assert.is_true(report.samples > 0 and report.calls > 100, report.calls .. " calls, " .. report.samples .. " samples")
  end)
end)
