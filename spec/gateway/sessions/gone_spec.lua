-- A part of `./dev soak gone`: every request of the protocol, its client gone at every point of its life.
local gone = require "spec.soak.gone"

describe("clients that leave at any point of a request", function()
  it("leave nothing behind in the gateway, over HTTP/1.1, HTTP/2 and stdio", function()
    local report = gone.run { seconds = 15, least = 51 }
    assert.same({}, report.violations, gone.describe(report))
    assert.is_true(report.lives > 50 and report.processes > 0, gone.describe(report))
  end)
end)
