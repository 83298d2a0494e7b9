-- B-03 over TLS: readers of quiet streams that disconnect are detected as fast as without TLS, also if only TLS is
-- closed.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local departures = require "spec.helpers.departures"
local wait = require "spec.helpers.wait"

local function start(more)
  return gateway.start { tls = true, config = departures.config, scripts = more or departures.scripts }
end

describe("B-03 a quiet HTTP+SSE client over TLS", function()
  for _, way in ipairs { "FIN", "RST", "half-close", "goodbye" } do
    it("that leaves by " .. way .. " has no session any more 100 ms later", function()
      local g <close> = start()
      departures.assert_noticed(g, way)
      departures.assert_calm(g)
      assert.has_nothing_left(g)
    end)
  end

  it("that sends close_notify in TLS 1.2 has no session any more", function()
    local g <close> = start()
    g.tls.max = "1.2"
    departures.assert_noticed(g, "goodbye")
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)

  it("that is openssl s_client and is killed has no session any more", function()
    local g <close> = start()
    local words = { "s_client", "-quiet", "-verify_quiet", "-servername", "localhost", "-connect", "127.0.0.1:" .. g.port }
    departures.notices(g, function()
      local input = uv.new_pipe(false)
      local doomed = departures.spawn("/usr/bin/openssl", words, input, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
      assert.matches("200", doomed.line)
      assert.equal(1, g:status().gauges.sessions.sse)
      return function()
        doomed:kill()
        input:close()
      end
    end, function(status) return status.gauges.sessions.sse == 0 end)
    assert.has_nothing_left(g)
  end)
end)

describe("B-03 150 HTTP+SSE and 150 GET streams over TLS that carried no event", function()
  it("are closed, with their descriptors, as soon as their readers disconnect", function()
    local g <close> = start()
    departures.leave_quiet_streams(g, 150)
    departures.assert_calm(g)
    assert.has_nothing_left(g)
  end)
end)

describe("a call over TLS", function()
  local scripts = { ["tools/wait.lua"] = [[return tool { "Waits.", function() sleep(60) return "done" end }]] }

  for _, way in ipairs { "close", "reset", "fin", "goodbye" } do
    it(("is cancelled when its client disconnects (%s)"):format(way), function()
      local g <close> = start(scripts)
      local me = g:client "2026-07-28"
      local tries = departures.notices(g, function()
        local call = me:message("tools/call", { name = "wait", arguments = {} })
        local connection = client.connect(g)
        connection:send { method = "POST", path = "/mcp", headers = me:headers(call), body = call }
        g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
        return function() connection[way](connection) end, connection
      end, function(status) return status.gauges.requests_in_flight == 0 end)
      me:close()
      assert.equal(tries, g:status().counters.tool_aborted.gone)
      assert.has_nothing_left(g)
    end)
  end

  it("goes on while bytes of a next request arrive, in pieces of any size", function()
    local g <close> = start(scripts)
    local me = g:client "2026-07-28"
    local call = me:message("tools/call", { name = "wait", arguments = {} })
    local connection <close> = client.connect(g)
    connection:send { method = "POST", path = "/mcp", headers = me:headers(call), body = call }
    g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
    for _, piece in ipairs { "PO", "ST /", "mc", "p HTTP/1.1\r\nX: " .. ("y"):rep(5000) } do
      connection:send_raw(piece)
      wait.quietly(0.02)
    end
    wait.quietly(0.15)
    assert.equal(1, g:status().gauges.requests_in_flight)
    connection:close()
    me:close()
    assert.has_nothing_left(g)
  end)
end)
