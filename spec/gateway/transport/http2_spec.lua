-- HTTP/2: off by default; where it is on, everything that holds for HTTP/1.1 holds for each stream.
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local scripts = {
  ["tools/wait.lua"] = [[return tool { "Waits.", input = { seconds = t.number }, function(args) sleep(args.seconds) return "waited" end }]],
}

local function config(more)
  return http2.config { auth = "none", limits = more }
end

local function waits(peer, seconds)
  local message = wire.message(7, "tools/call", { name = "wait", arguments = { seconds = seconds }, _meta = wire.meta() })
  return peer:post(message, wire.mirrored(message))
end

local function open_session(peer)
  local id = peer:post(wire.initialize_message "2025-11-25")
  assert.equal(200, peer:answer(id).status)
end

-- The ids of sessions are in headers, which this client does not decode: they are opened over HTTP/1.1.
local function event_stream(g, peer)
  local session = wire.initialize(g, "2025-11-25")
  return peer:ask { method = "GET", headers = { accept = "text/event-stream", ["mcp-session-id"] = session } }, session
end

describe("a listener without http2", function()
  it("answers the preface of HTTP/2 as HTTP/1.1, and offers no HTTP/2 in TLS", function()
    local g <close> = gateway.start()
    local connection <close> = client.connect(g)
    connection:send_raw(http2.preface)
    assert.matches("^HTTP/1.1 40", connection:wait_closed():read_response().head)
    local secure <close> = gateway.start { tls = true }
    assert.is_false((pcall(http2.connect, secure)))
    assert.equal(0, secure:status().gauges.http2_connections)
  end)

  it("does not upgrade from HTTP/1.1, and neither does one with http2", function()
    for _, where in ipairs { {}, http2.config() } do
      local g <close> = gateway.start { config = where }
      local response = wire.request(g, "GET", "/nowhere", {
        Connection = "Upgrade, HTTP2-Settings", Upgrade = "h2c", ["HTTP2-Settings"] = "AAMAAABkAAQAAP__",
      })
      assert.equal(404, response.status)
    end
  end)
end)

describe("a listener with http2: on", function()
  it("serves both versions at one port", function()
    local g <close> = gateway.start { config = config() }
    local peer <close> = http2.connect(g)
    open_session(peer)
    assert.equal(1, g:status().gauges.http2_connections)
    assert.is_string((wire.initialize(g, "2025-11-25")))
    peer:close()
    g:wait_status(function(status) return status.gauges.http2_connections == 0 end)
  end)

  it("accepts the preface byte by byte, and HTTP/1.1 requests that begin like it", function()
    local g <close> = gateway.start { config = config() }
    local peer <close> = http2.connect(g, { bare = true })
    for byte in (http2.preface .. http2.settings()):gmatch "." do
      peer:send(byte)
      wait.quietly(0.001)
    end
    open_session(peer)
    local connection <close> = client.connect(g)
    connection:send_raw "P"
    wait.quietly(0.01)
    connection:send_raw "OST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
    connection:send_raw "{}"
    table.insert(connection.asked, "POST")
    assert.equal(404, connection:read_response().status)
  end)

  it("selects HTTP/2 by ALPN, and knows the client's certificate on each stream", function()
    local authority, here = certificates.make { subject = "/CN=clients", is_authority = true }, certificates.here()
    local robot = certificates.make({ subject = "/CN=robot" }, authority)
    local g <close> = gateway.start {
      config = { listen = { { address = "127.0.0.1:0", http2 = "on", tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem" } } } },
      files = {
        ["ca.pem"] = authority.own, ["robot.pem"] = robot.certificate, ["robot.key"] = robot.key, ["cert.pem"] = here.certificate, ["key.pem"] = here.key,
      },
      scripts = {
        ["auth/main.lua"] = [[return auth { function(request) return { id = request.tls.subject } end }]],
        ["tools/me.lua"] = [[return tool { "Who calls?", function(_, call) return call.principal.id end }]],
      },
    }
    local tls = { name = "localhost", ca = g.dir .. "/cert.pem", certificate = g.dir .. "/robot.pem", key = g.dir .. "/robot.key" }
    local peer <close> = http2.connect(g, { tls = tls })
    assert.equal("h2", peer.connection.tls:facts().alpn)
    local message = wire.message(7, "tools/call", { name = "me", arguments = {}, _meta = wire.meta() })
    for _ = 1, 3 do
      assert.matches('"text":"CN=robot"', peer:call(message, wire.mirrored(message)).data)
    end
    tls.alpn = "http/1.1"
    local old <close> = client.connect(g, { tls = tls })
    assert.equal("http/1.1", old.tls:facts().alpn)
  end)

  it("serves calls of one connection at the same time", function()
    local g <close> = gateway.start { config = config(), scripts = scripts }
    local peer <close> = http2.connect(g)
    local slow, ids = waits(peer, 0.3), {}
    for i = 1, 60 do ids[i] = waits(peer, 0.001) end
    for _, id in ipairs(ids) do
      assert.matches("waited", peer:answer(id).data)
      assert.is_nil(peer.streams[slow])
    end
    assert.matches("waited", peer:answer(slow).data)
    peer:close()
    assert.has_nothing_left(g)
  end)

  it("serves 50 event streams and calls on one connection, and refuses more event streams", function()
    local g <close> = gateway.start { config = config(), scripts = scripts, workers = 1 }
    local peer <close> = http2.connect(g)
    local streams = {}
    for i = 1, 50 do streams[i] = event_stream(g, peer) end
    peer:wait("all streams to begin", function()
      for _, id in ipairs(streams) do
        if not (peer.streams[id] and #peer.streams[id].data > 0) then return false end
      end
      return true
    end)
    assert.equal(50, g:status().gauges.streams_open)
    assert.matches("waited", peer:answer(waits(peer, 0)).data)
    local more = event_stream(g, peer)
    assert.equal(503, peer:answer(more).status)
    peer:send(http2.rst(streams[1]))
    g:wait_status(function(status) return status.gauges.streams_open == 49 end)
    local again = event_stream(g, peer)
    peer:wait("another stream", function() return peer.streams[again] and peer.streams[again].status == 200 end)
    peer:close()
    g:wait_status(function(status) return status.gauges.streams_open == 0 end)
  end)

  it("keeps subscriptions/listen calls open while other requests of the connection come and go", function()
    local g <close> = gateway.start { config = config(), scripts = scripts, workers = 1 }
    local peer <close> = http2.connect(g)
    local listens = {}
    for i = 1, 5 do
      -- The body is large, so that it is counted, and freed when the call listens. Requests follow in the same write.
      local meta = wire.meta(nil, { ["example/pad"] = ("x"):rep(30000) })
      local message = wire.message(i, "subscriptions/listen", { notifications = { toolsListChanged = true }, _meta = meta })
      listens[i] = peer:post(message, wire.mirrored(message))
      local ids = { waits(peer, 0), waits(peer, 0.01), waits(peer, 0) }
      for _, id in ipairs(ids) do assert.matches("waited", peer:answer(id).data) end
    end
    for _, id in ipairs(listens) do
      peer:wait("the subscription", function() return peer.streams[id] and peer.streams[id].data:find("acknowledged", 1, true) end)
    end
    g:wait_status(function(status) return status.gauges.listeners == 5 and status.gauges.body_bytes == 0 end)
    peer:close()
    assert.has_nothing_left(g)
  end)

  it("sends heartbeats on each quiet stream", function()
    local g <close> = gateway.start { config = http2.config { auth = "none", heartbeat = "100ms" } }
    local peer <close> = http2.connect(g)
    local a, b = event_stream(g, peer), event_stream(g, peer)
    for _, id in ipairs { a, b } do
      peer:wait("a heartbeat", function() return peer.streams[id] and peer.streams[id].data:find("\n:\n\n", 1, true) end)
    end
  end)

  it("names the stream's request in the log, as with HTTP/1.1", function()
    local g <close> = gateway.start { config = http2.config { auth = "none", log = { level = "debug" } } }
    local peer <close> = http2.connect(g)
    assert.equal(404, peer:answer(peer:ask { method = "GET", path = "/nowhere" }).status)
    assert.equal("127.0.0.1", g:wait_log("refused", { path = "/nowhere", status = 404 }).fields.address)
    assert.equal(403, peer:answer(peer:ask { method = "GET", authority = "evil.example" }).status)
    g:wait_log("refused", { cause = "host" })
  end)

  it("counts its connections in limits.connections", function()
    local g <close> = gateway.start { config = config { connections = 2 }, workers = 1 }
    local a <close> = http2.connect(g)
    local b <close> = http2.connect(g)
    assert.is_true(a:is_alive() and b:is_alive())
    local c <close> = http2.connect(g)
    wait.quietly(0.1)
    assert.equal(0, #c.frames)
    a:close()
    assert.is_true(c:is_alive())
  end)
end)

describe("the limits of a request over HTTP/2", function()
  it("refuse a body over limits.body with 413, announced or not, and no other stream", function()
    local g <close> = gateway.start { config = config { body = "64KiB" }, scripts = scripts }
    local peer <close> = http2.connect(g)
    local other = waits(peer, 0.2)
    for _, headers in ipairs { {}, { ["content-length"] = "200000" } } do
      local id = peer:ask { headers = headers, body = ("x"):rep(200000) }
      assert.equal(413, peer:answer(id).status)
    end
    assert.equal(413, peer:answer(peer:ask { body = ("x"):rep(65537) }).status)
    assert.not_equal(413, peer:answer(peer:ask { body = ("x"):rep(65536) }).status)
    -- The gateway gives back the windows: more than the first 16 MiB of the connection can be sent.
    assert.matches("waited", peer:answer(other).data)
    assert.is_true(peer:is_alive())
  end)

  it("send WINDOW_UPDATE for bodies that are discarded", function()
    local g <close> = gateway.start { config = config { body = "64KiB" } }
    local peer <close> = http2.connect(g)
    local given = 65535
    for i = 1, 12 do
      local id = peer:ask { body = ("x"):rep(1 << 20) }
      assert.equal(413, peer:answer(id).status, i)
    end
    assert.is_true(peer:is_alive())
    for _, frame in ipairs(peer.frames) do
      if frame.kind == http2.WINDOW_UPDATE and frame.id == 0 then given = given + (">I4"):unpack(frame.payload) end
    end
    assert.is_true(given - 12 * (1 << 20) >= 8 << 20, given)
  end)

  it("refuse headers over the limit with 431, and end the connection for far more", function()
    local g <close> = gateway.start { config = config {}, constants = { headers = 2048 } }
    local peer <close> = http2.connect(g)
    assert.equal(431, peer:answer(peer:ask { headers = { ["x-large"] = ("v"):rep(3000) } }).status)
    assert.is_true(peer:is_alive())
    local id = peer.next_id
    peer:send(http2.frame(http2.HEADERS, http2.END_STREAM, id, http2.literal("x-large", ("v"):rep(16000))))
    peer:send(http2.frame(http2.CONTINUATION, 0, id, http2.literal("x-large", ("v"):rep(16000))))
    assert.equal(http2.ENHANCE_YOUR_CALM, peer:refused().code)
    assert.equal(1, g:status().counters.http2_refused.headers)
  end)

  it("answer a body that does not arrive in limits.request_time with 408", function()
    local g <close> = gateway.start { config = config { request_time = "300ms" }, scripts = scripts }
    local peer <close> = http2.connect(g)
    local id = peer:ask { body = false }
    wait.for_fact("408", 20, function()
      if not (peer.streams[id] and peer.streams[id].status) then
        -- a body that arrives byte by byte exceeds limits.request_time, too
        peer:send(http2.frame(http2.DATA, 0, id, ("x"):rep(64)))
        wait.quietly(0.02)
      end
      peer:is_closed()
      return peer.streams[id] and peer.streams[id].status
    end)
    assert.equal(408, peer:answer(id).status)
    assert.is_true(peer:is_alive())
  end)

  it("end a connection whose preface, frame or headers do not arrive in limits.request_time", function()
    local g <close> = gateway.start { config = config { request_time = "200ms" } }
    local whole = http2.frame(http2.HEADERS, http2.END_STREAM, 1, http2.block(http2.fields {}))
    for name, bytes in pairs {
      ["nothing"] = "", ["half a preface"] = http2.preface:sub(1, 12), ["no settings"] = http2.preface,
      ["half a frame"] = http2.preface .. http2.settings() .. whole:sub(1, 20), ["half a block"] = http2.preface .. http2.settings() .. whole,
    } do
      local peer <close> = http2.connect(g, { bare = true, acknowledges = false })
      peer:send(bytes)
      assert.truthy(peer:refused(), name)
    end
    assert.equal(3, g:status().counters.http2_refused.time, require "cjson".encode(g:status().counters.http2_refused))
  end)

  it("end an idle connection after limits.request_time, but none with a stream", function()
    local g <close> = gateway.start { config = config { request_time = "200ms" } }
    local quiet <close> = http2.connect(g)
    local used <close> = http2.connect(g)
    event_stream(g, used)
    assert.equal(http2.NO_ERROR, quiet:refused().code)
    wait.quietly(0.5)
    assert.is_true(used:is_alive())
  end)

  it("apply to the bodies of all requests together", function()
    local g <close> = gateway.start { config = config { body = "1MiB", bodies = "2MiB" }, workers = 1 }
    local peer <close> = http2.connect(g)
    local ids = {}
    for i = 1, 4 do
      ids[i] = peer:ask { body = false }
      for _ = 1, 50 do peer:send(http2.frame(http2.DATA, 0, ids[i], ("x"):rep(16000))) end
    end
    peer:wait("503", function()
      for _, id in ipairs(ids) do
        if peer.streams[id] and peer.streams[id].status == 503 then return true end
      end
    end)
    assert.is_true(g:status().counters.refused.bodies > 0)
    -- The gauge is read while the rest arrives, part of which is counted before it is refused.
    wait.for_fact("bodies within limits.bodies", 20, function() return g:status().gauges.body_bytes <= 2 << 20 end)
    peer:close()
    assert.has_nothing_left(g)
  end)

  it("apply to the bodies of one connection", function()
    local g <close> = gateway.start { config = config { body = "256KiB" }, workers = 1 }
    local peer <close> = http2.connect(g)
    local ids = {}
    for i = 1, 8 do
      ids[i] = peer:ask { body = false }
      for _ = 1, 12 do peer:send(http2.frame(http2.DATA, 0, ids[i], ("x"):rep(16000))) end
    end
    peer:wait("503", function()
      for _, id in ipairs(ids) do
        if peer.streams[id] and peer.streams[id].status == 503 then return true end
      end
    end)
    -- as above: part of what still arrives is counted before it is refused
    wait.for_fact("bodies within the connection's share", 20, function() return g:status().gauges.body_bytes <= 5 * 256 * 1024 end)
  end)

  it("apply to the number of streams", function()
    local g <close> = gateway.start { config = config(), scripts = scripts, workers = 1 }
    local peer <close> = http2.connect(g)
    local ids = {}
    for i = 1, 101 do ids[i] = waits(peer, 30) end
    assert.equal(http2.REFUSED_STREAM, peer:answer(ids[101]).reset)
    assert.is_true(peer:is_alive())
    peer:close()
    assert.has_nothing_left(g)
  end)
end)

describe("draining with HTTP/2", function()
  it("sends GOAWAY, finishes what was begun, and closes", function()
    local g <close> = gateway.start { config = config(), scripts = scripts }
    local idle <close> = http2.connect(g)
    local busy <close> = http2.connect(g)
    local id = waits(busy, 1.5)
    g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
    assert.is_true(idle:is_alive())
    g:signal "sigterm"
    assert.equal(http2.NO_ERROR, idle:refused().code)
    busy:wait("the last GOAWAY", function() return busy.goaway and busy.goaway.last == id end)
    busy:ask { body = "{}" } -- a request after the last GOAWAY is ignored, and so is its body
    assert.matches("waited", busy:answer(id).data)
    busy:refused()
    assert.equal(0, (g:wait_exit(10)))
  end)

  it("ends event streams", function()
    local g <close> = gateway.start { config = config() }
    local peer <close> = http2.connect(g)
    local id = event_stream(g, peer)
    peer:wait("the stream", function() return peer.streams[id] end)
    g:signal "sigterm"
    assert.is_true(peer:answer(id).ended)
    assert.equal(0, (g:wait_exit(10)))
  end)

  it("ends at once at the second signal", function()
    local g <close> = gateway.start { config = config(), scripts = scripts }
    local peer <close> = http2.connect(g)
    waits(peer, 30)
    g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
    g:signal "sigterm"
    peer:wait("GOAWAY", function() return peer.goaway end)
    g:signal "sigterm"
    g:wait_exit(10)
    peer:refused()
  end)
end)
