-- A client that disconnects, or cancels a stream, is noticed at once, also while nothing is sent.
local departures = require "spec.helpers.departures"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/wait.lua"] = [[return tool { "Waits.", input = { seconds = t.number }, function(args) sleep(args.seconds) return "waited" end }]],
  ["tools/long.lua"] = [[return tool { "A long text.", input = { n = t.integer }, function(args) return ("x"):rep(args.n) end }]],
}

local function call(peer, name, arguments)
  local message = wire.message(7, "tools/call", { name = name, arguments = arguments, _meta = wire.meta() })
  return peer:post(message, wire.mirrored(message))
end

local function event_stream(g, peer)
  local session = wire.initialize(g, "2025-11-25")
  local id = peer:ask { method = "GET", headers = { accept = "text/event-stream", ["mcp-session-id"] = session } }
  peer:wait("the stream", function() return peer.streams[id] and #peer.streams[id].data > 0 end)
  return id, session
end

local ways = {
  FIN = function(peer) peer.connection:fin() end,
  RST = function(peer) peer.connection:reset() end,
  ["GOAWAY with an error"] = function(peer) peer:send(http2.frame(http2.GOAWAY, 0, 0, (">I4I4"):pack(0, http2.INTERNAL_ERROR))) end,
  RST_STREAM = function(peer, ids)
    for _, id in ipairs(ids) do peer:send(http2.rst(id)) end
  end,
  ["close_notify"] = function(peer) peer.connection:goodbye() end,
}

for name, leave in pairs(ways) do
  for _, tls in ipairs { false, true } do
    if tls or name ~= "close_notify" then
      it(name .. " ends a quiet event stream and a call" .. (tls and ", with TLS" or ""), function()
        local listen = { address = "127.0.0.1:0", http2 = "on", tls = tls and { certificate = "cert.pem", key = "key.pem" } or nil }
        local g <close> = gateway.start { tls = tls, config = { auth = "none", heartbeat = "60s", listen = { listen } }, scripts = scripts }
        local sessions = {}
        departures.notices(g, function()
          local peer = http2.connect(g)
          local stream, session = event_stream(g, peer)
          sessions[#sessions + 1] = session
          local ids = { stream, call(peer, "wait", { seconds = 300 }) }
          g:wait_status(function(status) return status.gauges.requests_in_flight == 1 and status.gauges.streams_open == 1 end)
          return function() leave(peer, ids) end, peer
        end, function(status)
          local gauges = status.gauges
          return gauges.requests_in_flight == 0 and gauges.streams_open == 0 and gauges.http2_connections == (name == "RST_STREAM" and 1 or 0)
        end)
        for _, session in ipairs(sessions) do assert.equal(204, wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session }).status) end
        assert.has_nothing_left(g)
      end)
    end
  end
end

describe("a GOAWAY without an error", function()
  it("lets open streams finish", function()
    local g <close> = gateway.start { config = http2.config { auth = "none" }, scripts = scripts }
    local peer <close> = http2.connect(g)
    local id = call(peer, "wait", { seconds = 0.2 })
    peer:send(http2.frame(http2.GOAWAY, 0, 0, (">I4I4"):pack(0, http2.NO_ERROR)))
    assert.matches("waited", peer:answer(id).data)
  end)
end)

describe("a client that disconnects while it reads nothing", function()
  for _, how in ipairs { "fin", "reset" } do
    it("frees what was queued for it: " .. how, function()
      local g <close> = gateway.start { config = http2.config { auth = "none" }, scripts = scripts }
      local peer <close> = http2.connect(g, { buffer = 4096, settings = { [http2.INITIAL_WINDOW_SIZE] = 1 << 30 } })
      peer:send(http2.window(0, 1 << 30))
      peer.connection:pause()
      for _ = 1, 3 do call(peer, "long", { n = 4 << 20 }) end
      g:wait_status(function(status) return status.counters.calls == 3 and status.gauges.requests_in_flight == 0 and status.gauges.queue_bytes > 0 end)
      peer.connection[how](peer.connection)
      g:wait_status(function(status) return status.gauges.queue_bytes == 0 and status.gauges.http2_connections == 0 end)
      peer:close()
      assert.has_nothing_left(g)
    end)
  end
end)

describe("a call that is reset", function()
  it("is cancelled without an answer, and other calls go on", function()
    local g <close> = gateway.start { config = http2.config { auth = "none" }, scripts = scripts }
    local peer <close> = http2.connect(g)
    local cancelled, ids = call(peer, "wait", { seconds = 30 }), {}
    for i = 1, 20 do ids[i] = call(peer, "wait", { seconds = 0.1 }) end
    g:wait_status(function(status) return status.counters.calls == 21 end)
    peer:send(http2.rst(cancelled))
    assert.equal("disconnected", g:wait_log("call cancelled").fields.why)
    for _, id in ipairs(ids) do assert.matches("waited", peer:answer(id).data) end
    assert.is_nil(peer.streams[cancelled])
  end)
end)

describe("a body that is cut off", function()
  for _, how in ipairs { "close", "reset", "rst" } do
    it("leaves no request in memory: " .. how, function()
      local g <close> = gateway.start { config = http2.config { auth = "none" } }
      local peer <close> = http2.connect(g)
      local id = peer:ask { body = false }
      for _ = 1, 20 do peer:send(http2.frame(http2.DATA, 0, id, ("x"):rep(16000))) end
      g:wait_status(function(status) return status.gauges.body_bytes > 200000 end)
      if how == "rst" then
        peer:send(http2.rst(id))
        assert.is_true(peer:is_alive())
        g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
      else
        peer.connection[how](peer.connection)
      end
      peer:close()
      assert.has_nothing_left(g)
    end)
  end
end)
