-- The reader of a quiet HTTP+SSE stream closes it, and its session ends.
-- proves: a client that leaves is noticed at once 2024-11-05 sse
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local departures = require "spec.helpers.departures"

local function start()
  return gateway.start { config = departures.config }
end

describe("B-01 a quiet HTTP+SSE client that leaves by FIN", function()
  it("has no session any more 100 ms later", function()
    local g <close> = start()
    departures.assert_noticed(g, "FIN")
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("has no session when its next POST arrives right behind the FIN", function()
    local g <close> = start()
    for _ = 1, 30 do
      assert.same({ FIN = 404 }, departures.leave_sessions(g, { "FIN" }, 0))
    end
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("has no session after it closes only its sending half", function()
    local g <close> = start()
    departures.assert_noticed(g, "half-close")
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("has no session when bytes of a next request came before the FIN", function()
    local g <close> = start()
    departures.assert_noticed(g, "FIN behind bytes")
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("ends no session of another client", function()
    local g <close> = start()
    local other <close> = g:client "2024-11-05"
    departures.assert_noticed(g, "FIN")
    assert.same({}, other:result "ping")
    other:close()
    assert.has_nothing_left(g)
  end)
end)

describe("B-01 a quiet GET stream of a Streamable HTTP session whose reader leaves by FIN", function()
  it("can be opened by the next reader 100 ms later, and the session stays open", function()
    local g <close> = start()
    local c <close> = g:client "2025-11-25"
    departures.notices(g, function()
      local stream = c:get_stream():wait "comment"
      return function() stream:hang_up() end
    end, function(status) return status.gauges.streams_open == 0 end)
    local next_reader = c:get_stream()
    assert.equal(200, next_reader:head().status)
    assert.same({}, c:result "ping")
    next_reader:hang_up()
    assert.equal(204, c:delete().status)
    c:close()
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)
end)

describe("B-01 a client that disconnects before it sent a request", function()
  it("leaves no connection and no session", function()
    local g <close> = start()
    for _ = 1, 30 do
      client.connect(g):close()
    end
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)
end)
