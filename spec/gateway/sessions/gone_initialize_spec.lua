-- A client that has left before its `initialize` is answered: no session is made for it, at the limit of the sessions
-- and below it.
local departures = require "spec.soak.departures"
local http2 = require "spec.helpers.http2"
local wire = require "spec.helpers.wire"

local TIMES <const> = 100

local start = departures.start

for _, form in ipairs(departures.names) do
  describe("clients that send an initialize and leave: " .. form, function()
    it("are refused without harm at a limit of the sessions", function()
      local g <close> = start { max = 2 }
      local ids = { departures.stay(g), departures.stay(g) }
      departures.run(g, { form = form, times = TIMES })
      assert.equal(2, departures.sessions_left(g, 2))
      for _, id in ipairs(ids) do assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = id }).status) end
      assert.has_nothing_left(g)
    end)

    it("leave no session", function()
      local g <close> = start({ per_principal = 10000, max = 10000 }, { initialize_within_ms = 1000 })
      departures.run(g, { form = form, times = TIMES })
      assert.equal(0, departures.sessions_left(g, 0))
      assert.has_nothing_left(g)
    end)
  end)
end

for _, form in ipairs { "http1 small, FIN", "http1 small, RST", "http1 last, RST", "unix small", "http2 RST_STREAM", "HTTP+SSE, FIN", "HTTP+SSE, RST" } do
  it("no session is made for clients that have left before the gateway reads a byte of them: " .. form, function()
    local g <close> = start { per_principal = 10000, max = 10000 }
    departures.freeze(g)
    departures.run(g, { form = form, times = 100, at_once = 100 })
    g:signal "sigcont"
    assert.equal(0, departures.sessions_left(g, 0))
    assert.equal(0, g:status().counters.sessions_opened)
    assert.has_nothing_left(g)
  end)
end

describe("an answer to initialize that its client never takes", function()
  local leave = {
    RST_STREAM = function(peer, id) peer:send(http2.rst(id)) end,
    FIN = function(peer) peer.connection:fin() end,
    RST = function(peer) peer.connection:reset() end,
  }
  for name, go in pairs(leave) do
    it("ends its session, over HTTP/2 with an empty window: " .. name, function()
      local g <close> = start { per_principal = 10000 }
      local peer <close> = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
      local id = peer:post(departures.initialize(0))
      g:wait_status(function(status) return status.gauges.sessions.http == 1 and status.gauges.requests_in_flight == 0 end)
      go(peer, id)
      g:wait_status(function(status) return status.gauges.sessions.http == 0 and status.counters.sessions_closed.gone == 1 end)
      peer:close()
      assert.has_nothing_left(g)
    end)
  end
end)

describe("a session whose client has its answer", function()
  local function initialize(c, headers)
    headers.Accept = wire.both
    return c:request({ method = "POST", path = "/mcp", body = wire.initialize_message "2025-11-25", headers = headers }).headers["mcp-session-id"]
  end
  local function calls_of(g, id) return wire.post(g, wire.message(1, "ping"), { ["Mcp-Session-Id"] = id }).status end

  it("outlives the connection, and the time to name it, if its client closes it", function()
    local g <close> = start({ per_principal = 10000 }, { initialize_within_ms = 100 })
    local c <close> = g:connect()
    local id = initialize(c, {})
    local peer <close> = http2.connect(g)
    assert.equal(200, peer:call(departures.initialize(0)).status)
    c:close()
    peer:close()
    g:wait_status(function(status) return status.gauges.connections == 1 end)
    local late <close> = g:connect() -- a further client, whose session is swept away because it is not initialized
    initialize(late, {})
    late:reset()
    g:wait_status(function(status) return status.counters.sessions_closed.uninitialized == 1 end)
    assert.equal(2, g:status().gauges.sessions.http)
    assert.equal(200, calls_of(g, id))
  end)

  for how, headers in pairs { reset = {}, close = { Connection = "close" } } do
    it("ends after the time to name it, if it is not known and its client never comes back: " .. how, function()
      local g <close> = start({ per_principal = 10000 }, { initialize_within_ms = 1000 })
      local ids = {}
      for i = 1, 2 do
        local c <close> = g:connect()
        ids[i] = initialize(c, headers)
        c[how](c)
      end
      assert.equal(200, calls_of(g, ids[2]))
      g:wait_status(function(status) return status.counters.sessions_closed.uninitialized == 1 end)
      assert.equal(404, calls_of(g, ids[1]))
      assert.equal(200, calls_of(g, ids[2]))
      assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = ids[2] }).status)
      assert.has_nothing_left(g)
    end)
  end

  it("ends at once if its client resets the stream of HTTP/2 that has brought the answer, and has not named it", function()
    local g <close> = start { per_principal = 10000 }
    local peer <close> = http2.connect(g)
    for _ = 1, 2 do
      local id = peer:post(departures.initialize(0))
      assert.equal(200, peer:answer(id).status)
      peer:send(http2.rst(id))
    end
    g:wait_status(function(status) return status.counters.sessions_closed.gone == 2 end)
    peer:close()
    assert.has_nothing_left(g)
  end)
end)
