-- The connection of an HTTP+SSE stream's reader is reset, and its session ends.
local gateway = require "spec.helpers.gateway"
local departures = require "spec.helpers.departures"

local function start()
  return gateway.start { config = departures.config, scripts = departures.scripts }
end

describe("B-02 an HTTP+SSE client whose connection is lost", function()
  it("by RST has no session any more 100 ms later", function()
    local g <close> = start()
    departures.assert_noticed(g, "RST")
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("by RST has no session when its next POST arrives right behind", function()
    local g <close> = start()
    for _ = 1, 30 do
      assert.same({ RST = 404 }, departures.leave_sessions(g, { "RST" }, 0))
    end
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("by SIGKILL, with 64 KB of events unread, has no session any more 100 ms later", function()
    local g <close> = start()
    assert.equal(404, departures.kill_client(g, 4, 16 * 1024, true))
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("by SIGKILL, with more events unread than the kernel buffers, has no session any more", function()
    local g <close> = start()
    assert.equal(404, departures.kill_client(g, 24, 1024 * 1024, false))
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)
end)

describe("B-02 a quiet GET stream of a Streamable HTTP session whose reader is lost by RST", function()
  it("can be opened by the next reader 100 ms later, and the session stays open", function()
    local g <close> = start()
    local c <close> = g:client "2025-11-25"
    departures.notices(g, function()
      local stream = c:get_stream():wait "comment"
      return function() stream:reset() end
    end, function(status) return status.gauges.streams_open == 0 end)
    local next_reader = c:get_stream()
    assert.equal(200, next_reader:head().status)
    assert.same({}, c:result "ping")
    next_reader:reset()
    assert.equal(204, c:delete().status)
    c:close()
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)
end)
