-- A client that has left before its `initialize` is answered: no session is made for it, at the limit of the sessions and below it.
local departures = require "spec.soak.departures"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local lfs = require "lfs"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local TIMES <const> = 100

local function start(sessions)
  return gateway.start { workers = 1, config = http2.config { auth = "none", sessions = sessions } }
end

-- Stops all threads of the gateway.
local function stop(g)
  uv.kill(g.pid, "sigstop")
  wait.for_fact("a stopped gateway", 5, function()
    for name in lfs.dir("/proc/" .. g.pid .. "/task") do
      local file <close> = io.open("/proc/" .. g.pid .. "/task/" .. name .. "/stat")
      if tonumber(name) and file and not file:read "a":find "%) T " then return false end
    end
    return true
  end)
end

for _, form in ipairs(departures.exact) do
  describe("clients that send an initialize and leave: " .. form, function()
    it("are refused without harm at a limit of the sessions", function()
      local g <close> = start { per_principal = 2 }
      local ids = { (wire.initialize(g, "2025-11-25")), (wire.initialize(g, "2025-11-25")) }
      departures.run(g, { form = form, times = TIMES })
      assert.equal(2, departures.sessions_left(g))
      for _, id in ipairs(ids) do assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = id }).status) end
      assert.has_nothing_left(g)
    end)

    it("leave no session", function()
      local g <close> = start { per_principal = 10000, max = 10000 }
      departures.run(g, { form = form, times = TIMES })
      assert.equal(0, departures.sessions_left(g))
      assert.has_nothing_left(g)
    end)
  end)
end

for _, form in ipairs { "http1 small, FIN", "http1 small, RST", "http2 RST_STREAM", "HTTP+SSE, FIN", "HTTP+SSE, RST" } do
  it("no session is made for clients that have left before the gateway reads a byte of them: " .. form, function()
    local g <close> = start { per_principal = 10000, max = 10000 }
    stop(g)
    departures.run(g, { form = form, times = 100, at_once = 100 })
    uv.kill(g.pid, "sigcont")
    assert.equal(0, departures.sessions_left(g))
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
  for _, how in ipairs { "close", "reset" } do
    it("outlives the connection: " .. how, function()
      local g <close> = start { per_principal = 10000 }
      for _, headers in ipairs { {}, { Connection = "close" } } do
        headers.Accept = wire.both
        local c <close> = g:connect()
        local id = c:request({ method = "POST", path = "/mcp", body = wire.initialize_message "2025-11-25", headers = headers }).headers["mcp-session-id"]
        c[how](c)
        g:wait_status(function(status) return status.gauges.connections == 1 end)
        assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = id }).status)
      end
      local peer <close> = http2.connect(g)
      assert.equal(200, peer:call(departures.initialize(0)).status)
      peer.connection[how](peer.connection)
      g:wait_status(function(status) return status.gauges.http2_connections == 0 end)
      assert.equal(1, g:status().gauges.sessions.http)
    end)
  end
end)
