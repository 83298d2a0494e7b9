-- Streams that carry no event: the gateway detects a client's disconnect itself, not by a failed write.
local gateway = require "spec.helpers.gateway"
local departures = require "spec.helpers.departures"

describe("B-03 1,000 HTTP+SSE and 1,000 GET streams that carried no event", function()
  it("leave no stream, descriptor or CLOSE-WAIT behind when half are closed and half are reset", function()
    local g <close> = gateway.start { config = departures.config }
    departures.leave_quiet_streams(g, 1000)
    local counters = g:status().counters
    assert.equal(1000, counters.sessions_closed.gone)
    assert.equal(1000, counters.sessions_closed.delete)
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)
end)
