-- proxy_protocol: on: a connection begins with the header of the PROXY protocol, from trusted proxies only; the header
-- comes before TLS and HTTP/2.
local uv = require "luv"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local wait = require "spec.helpers.wait"
local whereabouts = require "spec.helpers.whereabouts"
local wire = require "spec.helpers.wire"

local scripts, text_of = whereabouts.scripts, whereabouts.text_of

local SIGNATURE = "\r\n\r\n\0\r\nQUIT\n"

local function v2(command, family, rest) return SIGNATURE .. string.char(command, family) .. (">I2"):pack(#rest) .. rest end

local function four(address, more)
  local a, b, c, d = address:match "^(%d+)%.(%d+)%.(%d+)%.(%d+)$"
  return v2(0x21, 0x11, string.char(a, b, c, d) .. "\127\0\0\1\x12\x34\x01\xbb" .. (more or ""))
end

local function v1(address) return ("PROXY TCP4 %s 127.0.0.1 4711 443\r\n"):format(address) end

local function start(proxies, keys, options)
  options = options or {}
  local listen = { address = "127.0.0.1:0", trusted_proxies = proxies, proxy_protocol = "on" }
  for key, value in pairs(keys or {}) do listen[key] = value end
  options.scripts = scripts
  options.config = options.config or {}
  options.config.listen, options.config.auth = { listen }, "none"
  return gateway.start(options)
end

local function request(given) return whereabouts.request("where", given) end

-- What a client is told whose proxy sends `before` first.
local function ask(g, before, given, options)
  options = options or {}
  options.before = before
  local c <close> = client.connect(options.path or g, options)
  return text_of(c:request(request(given)))
end

local function refused(g) return (g:status().counters.refused or {}).proxy_protocol or 0 end

-- True if the gateway closes a connection that sends these bytes, without an answer.
local function is_closed(g, bytes, options)
  local c <close> = client.connect(g, options)
  c:send_raw(bytes)
  c:wait_closed(10)
  return #c.responses == 0 and c.rest == ""
end

describe("proxy_protocol", function()
  it("is what `moonpool call` hints at where it is no proxy", function()
    -- first the client is a trusted proxy that sends no header, then it is no trusted proxy
    for _, proxy in ipairs { "127.0.0.1", "192.0.2.1" } do
      local g <close> = start { proxy }
      local code, out, err = gateway.exec { "call", "where", "--url", g.url }
      assert.same({ 1, "" }, { code, out })
      assert.matches("\n  hint: if the address has proxy_protocol, only its proxies may connect there", err, 1, true)
    end
  end)

  it("gives the address of the client, for all requests of the connection", function()
    local g <close> = start { "127.0.0.1" }
    local before = { [v1 "203.0.113.7"] = "203.0.113.7", [four "203.0.113.8"] = "203.0.113.8",
      [four("203.0.113.9", "\x04\0\3abc" .. ("x"):rep(900))] = "203.0.113.9",
      ["PROXY TCP6 2001:DB8::7 ::1 1 1\r\n"] = "2001:db8::7", ["PROXY UNKNOWN\r\n"] = "127.0.0.1", [v2(0x20, 0, "")] = "127.0.0.1",
      [v2(0x21, 0, "")] = "127.0.0.1", [v2(0x21, 0x31, ("/run/a"):rep(36))] = "127.0.0.1" }
    for bytes, address in pairs(before) do
      local c <close> = client.connect(g, { before = bytes })
      for _ = 1, 3 do assert.equal(address, text_of(c:request(request()))) end
    end
    assert.equal(0, refused(g))
    assert.has_nothing_left(g)
  end)

  it("may bring the header byte by byte, or with the whole request", function()
    local g <close> = start { "127.0.0.1" }
    for _, header in ipairs { v1 "203.0.113.7", four "203.0.113.7" } do
      local c <close> = client.connect(g)
      c.tcp:nodelay(true)
      for byte in header:gmatch "." do
        c:send_raw(byte)
        uv.run "nowait"
      end
      assert.equal("203.0.113.7", text_of(c:request(request())))
    end
    assert.equal("203.0.113.7", ask(g, four "203.0.113.7"))
  end)

  it("closes connections without a header, with a wrong one, or with a part of one, and says why", function()
    local g <close> = start { "127.0.0.1" }
    local wrong = { "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", "\22\3\1\2\0\1\0\1\xfc\3\3", "PROXY TCP4 1.2.3.4\r\n", "PROXY " .. ("x"):rep(200),
      v2(0x21, 0x11, "short"),
      SIGNATURE .. "\x21\x11\xff\xff", SIGNATURE .. "\x21\x12\0\12" .. ("x"):rep(12), http2.preface, ("\0"):rep(100000) }
    for _, bytes in ipairs(wrong) do assert.is_true(is_closed(g, bytes), bytes:sub(1, 20)) end
    for _, part in ipairs { "PROX", SIGNATURE, "PROXY TCP4 1.2.3.4 " } do
      local c <close> = client.connect(g)
      c:send_raw(part):fin():wait_closed(10)
    end
    g:wait_log("refused", { cause = "proxy", why = "the connection does not begin with a PROXY header", address = "127.0.0.1" })
    g:wait_log("refused", { cause = "proxy", why = "the PROXY header is too large" })
    g:wait_log("refused", { cause = "proxy", why = "the connection ended before its PROXY header did" })
    assert.equal(#wrong + 3, refused(g))
    client.connect(g):fin():wait_closed(10):close() -- a connection that sends nothing, as a probe does, is not refused
    assert.equal(#wrong + 3, refused(g))
    assert.has_nothing_left(g)
  end)

  it("fills no log", function()
    local g <close> = start({ "127.0.0.1" }, nil, { constants = { log_refusals = 2 } })
    local began = os.time()
    for _ = 1, 50 do is_closed(g, "x") end
    g:wait_log("refused", { cause = "proxy" })
    local lines, seconds = 0, os.time() - began + 2
    for _, line in ipairs(g:log_lines()) do lines = lines + (line.fields.cause == "proxy" and 1 or 0) end
    assert.is_true(lines <= 2 * seconds)
    assert.equal(50, refused(g))
  end)

  it("closes connections whose header takes too long", function()
    local g <close> = start({ "127.0.0.1" }, nil, { constants = { handshake_ms = 300 } })
    local c <close> = client.connect(g)
    local slow <close> = client.connect(g, { before = SIGNATURE .. "\x21\x11\x0f\xf0" })
    wait.for_fact("the end of a slow header", 10, function()
      if not slow:is_closed_by_peer() then slow:send_raw "x" end
      return slow:is_closed_by_peer() and c:is_closed_by_peer()
    end)
    assert.equal(2, refused(g))
    g:wait_log("refused", { cause = "proxy", why = "the PROXY header took longer than 10 s" })
    assert.has_nothing_left(g)
  end)

  it("is for trusted proxies alone: another peer cannot set its address, and is closed at once", function()
    local g <close> = start { "127.0.0.1" }
    for _, bytes in ipairs { "", v1 "127.0.0.1", four "203.0.113.7" } do
      assert.is_true(is_closed(g, bytes, { from = "127.0.0.2" }))
    end
    g:wait_log("refused", { cause = "proxy", why = "the peer is no trusted proxy", address = "127.0.0.2" })
    assert.equal(3, refused(g))
  end)

  it("refuses no probe that leaves by a reset, before its connection is accepted", function()
    local g <close> = start({ "127.0.0.1" }, nil, { config = { workers = 1 } })
    g:signal "sigstop"
    for _ = 1, 3 do client.connect(g):reset() end
    g:signal "sigcont"
    -- this connection waits in the queue behind those that were reset
    assert.equal("203.0.113.7", ask(g, v1 "203.0.113.7"))
    assert.equal(0, refused(g))
    assert.has_nothing_left(g)
  end)

  it("goes before TLS", function()
    local here = require "spec.helpers.certificates".here()
    local g <close> = start({ "127.0.0.1" }, { tls = { certificate = "c.pem", key = "k.pem" }, http2 = "on" },
      { files = { ["c.pem"] = here.certificate, ["k.pem"] = here.key } })
    local tls = { name = "localhost", ca = g.dir .. "/c.pem" }
    for _, header in ipairs { v1 "203.0.113.7", four("203.0.113.7", ("x"):rep(3000)) } do
      assert.equal("203.0.113.7", ask(g, header, nil, { tls = tls }))
      local p <close> = http2.connect(g, { tls = tls, before = header })
      local body = whereabouts.body()
      assert.truthy(p:call(body, wire.mirrored(body)).data:find('"203.0.113.7"', 1, true))
    end
    assert.is_true(is_closed(g, "\22\3\1\2\0\1\0\1\xfc\3\3", { tls = false }))
    assert.has_nothing_left(g)
  end)

  it("goes before the preface of HTTP/2", function()
    local g <close> = start({ "127.0.0.1" }, { http2 = "on" })
    local body = whereabouts.body()
    local p <close> = http2.connect(g, { before = four "203.0.113.7" })
    assert.truthy(p:call(body, wire.mirrored(body)).data:find('"203.0.113.7"', 1, true))
    assert.equal("203.0.113.8", ask(g, v1 "203.0.113.8")) -- the same address also serves HTTP/1.1
  end)

  it("may be followed by headers of trusted proxies, not by those of clients", function()
    local g <close> = start { "127.0.0.1", "10.0.0.0/8" }
    local given = { ["X-Forwarded-For"] = "198.51.100.1" }
    assert.equal("203.0.113.7", ask(g, v1 "203.0.113.7", given))
    -- the PROXY header names a trusted proxy, so the address is the one in X-Forwarded-For
    assert.equal("198.51.100.1", ask(g, v1 "10.1.2.3", given))
    for _, header in ipairs { "PROXY UNKNOWN\r\n", v2(0x20, 0, ""), v2(0x21, 0x31, ("/run/a"):rep(36)) } do
      assert.equal("127.0.0.1", ask(g, header, given)) -- neither header says who the client is
    end
  end)

  it("works at a Unix socket whose peers are trusted", function()
    local path = gateway.new_folder() .. "/mcp.sock"
    local g <close> = gateway.start { scripts = scripts, config = { auth = "none",
      listen = { "127.0.0.1:0", { address = "unix:" .. path, trusted_proxies = { "unix" }, proxy_protocol = "on" } } } }
    assert.equal("203.0.113.7", ask(g, v1 "203.0.113.7", nil, { path = path }))
    assert.equal("unix", ask(g, "PROXY UNKNOWN\r\n", nil, { path = path }))
    assert.equal("127.0.0.1", ask(g))
  end)

  it("does not hold up a drain", function()
    local g <close> = start({ "127.0.0.1" }, nil, { constants = { handshake_ms = 1000 } })
    local c <close> = client.connect(g)
    local part <close> = client.connect(g, { before = "PROXY " })
    g:wait_status(function(now) return now.gauges.connections >= 2 end)
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
    c:wait_closed()
    part:wait_closed()
  end)
end)
