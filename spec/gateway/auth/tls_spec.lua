-- Listening with TLS: which clients are accepted, which error the others get, and how many seconds a handshake may take
-- (B-112).
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local departures = require "spec.helpers.departures"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local discover = { jsonrpc = "2.0", id = 1, method = "server/discover", params = { _meta = wire.meta() } }

local function ask(connection)
  local headers = wire.mirrored(discover, { Accept = wire.both })
  return connection:request { method = "POST", path = "/mcp", headers = headers, body = discover }
end

local function curl(g, ...)
  return gateway.run_program("/usr/bin/curl", { "-sS", "-m", "5", "--cacert", g.dir .. "/cert.pem", ... })
end

describe("a listener with TLS", function()
  it("serves every revision", function()
    local g <close> = gateway.start { tls = true }
    assert.matches("mcp=https://127.0.0.1:%d+/mcp sse=https://127.0.0.1:%d+/sse admin=http://", g.ready)
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local me = g:client(revision)
      assert.is_table(me:result(revision == "2026-07-28" and "server/discover" or "ping"))
      if me.delete then me:delete() end
      me:close()
    end
    assert.has_nothing_left(g)
  end)

  it("speaks TLS 1.2 and 1.3, with forward secrecy, and HTTP/1.1 in it", function()
    local g <close> = gateway.start { tls = true }
    for _, max in ipairs { "1.2", "1.3" } do
      local connection <close> = client.connect(g, { tls = { name = "localhost", ca = g.tls.ca, max = max, alpn = "http/1.1" } })
      local facts = connection.tls:facts()
      assert.equal("TLSv" .. max, facts.version)
      assert.equal("http/1.1", facts.alpn)
      assert.truthy(facts.cipher:find "GCM" or facts.cipher:find "CHACHA20", facts.cipher)
      assert.truthy(max == "1.3" or facts.cipher:find "^ECDHE", facts.cipher)
      assert.equal(200, ask(connection).status)
    end
    local code, out = curl(g, ("https://localhost:%d/nowhere"):format(g.port))
    assert.equal(0, code)
    assert.matches("nothing is served at this path", out)
    assert.has_nothing_left(g)
  end)

  it("tells refused clients the reason", function()
    local g <close> = gateway.start { tls = true }
    local function why(tls)
      tls.name, tls.ca = "localhost", tls.ca or g.tls.ca
      local ok, text = pcall(client.connect, g, { tls = tls })
      assert.is_false(ok)
      return text
    end
    assert.matches("protocol version", why { max = "1.1" })
    assert.matches("no application protocol", why { alpn = "h2" })
    local _, out, err = gateway.run_program("/bin/sh", { "-c", ("echo | openssl s_client -connect 127.0.0.1:%d -tls1_2 -cipher AES128-SHA"):format(g.port) })
    assert.matches("handshake failure", out .. err)
    local plain <close> = client.connect(g, { tls = false })
    local answer = plain:request { path = "/mcp" }
    assert.equal(400, answer.status)
    assert.equal("this port speaks TLS: use https://\r\n", answer.body)
    g:wait_status(function(status) return status.counters.refused.tls == 4 end)
    assert.has_nothing_left(g)
  end)

  it("resumes the TLS session of a client that reconnects, on any worker", function()
    local g <close> = gateway.start { tls = true, workers = 4 }
    for _, max in ipairs { "1.2", "1.3" } do
      local tls = { name = "localhost", ca = g.tls.ca, max = max }
      local first <close> = client.connect(g, { tls = tls })
      assert.equal(200, ask(first).status)
      for _ = 1, 16 do
        tls.resume = first
        local again <close> = client.connect(g, { tls = tls })
        assert.is_true(again.tls:facts().resumed)
        assert.equal(200, ask(again).status)
      end
    end
    assert.has_nothing_left(g)
  end)

  it("can be one of several, each with its own certificate", function()
    local one, other = certificates.make {}, certificates.here()
    local function tls(name) return { certificate = name .. ".pem", key = name .. ".key" } end
    local g <close> = gateway.start {
      files = { ["one.pem"] = one.certificate, ["one.key"] = one.key, ["other.pem"] = other.certificate, ["other.key"] = other.key },
      config = { listen = { { address = "127.0.0.1:0", tls = tls "one" }, "127.0.0.1:0", { address = "127.0.0.1:0" } },
        admin = { tls = tls "other" } },
    }
    local ports = {}
    g:wait_log "serving"
    for _, line in ipairs(g:log_lines()) do
      ports[#ports + 1] = tonumber((line.fields.address or ""):match ":(%d+)$")
    end
    local function fingerprint(port, file)
      local connection <close> = client.connect(port, { tls = { name = "localhost", ca = g.dir .. "/" .. file } })
      return connection.tls:facts().fingerprint
    end
    assert.equal(certificates.fingerprint(one.own), fingerprint(ports[1], "one.pem"))
    assert.equal(200, ask(client.connect(ports[2])).status)
    assert.equal(200, ask(client.connect(ports[3])).status)
    assert.equal(certificates.fingerprint(other.own), fingerprint(ports[4], "other.pem"))
    local admin <close> = client.connect(ports[4], { tls = { name = "localhost", ca = g.dir .. "/other.pem" } })
    local status = admin:request({ path = "/status" }):json()
    assert.equal(2, #status.certificates)
    assert.is_true(status.certificates[1].ok)
    assert.matches("^20%d%d%-", status.certificates[1].expires)
  end)

  it("survives a client that disconnects while a megabyte is written to it (B-111)", function()
    local g <close> = gateway.start { tls = true, scripts = departures.scripts, config = { limits = { call = { output = "8MiB" } } } }
    local me = g:client "2026-07-28"
    for _, way in ipairs { "close", "reset", "goodbye", "fin" } do
      local call = me:message("tools/call", { name = "big", arguments = { bytes = 4 * 1024 * 1024 } })
      local connection <close> = client.connect(g, { buffer = 4096 })
      connection:send { method = "POST", path = "/mcp", headers = me:headers(call), body = call }
      connection:read_head()
      connection:pause()[way](connection)
      connection:close()
    end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a handshake (B-112)", function()
  it("that half of 500 clients do not finish ends after a while, and others are served meanwhile", function()
    local g <close> = gateway.start { tls = true, constants = { handshake_ms = 2000 }, config = { sessions = { per_principal = 1000 } } }
    local old <close> = client.connect(g)
    local slow = {}
    for i = 1, 500 do
      local connection = client.connect(g, { tls = false })
      if i % 2 == 0 then -- every second client sends half a ClientHello, the others nothing
        local hello = require "tls_client".new { name = "localhost" }
        hello:feed ""
        connection:send_raw(hello:take():sub(1, 100))
      end
      slow[i] = connection
    end
    do
      local new <close> = client.connect(g)
      assert.equal(200, ask(new).status)
      assert.equal(200, ask(old).status)
    end
    assert.is_true(g:status().counters.refused.tls < 500, "others waited until all slow ones were closed")
    wait.for_fact("all slow ones to be closed", 10, function()
      for _, connection in ipairs(slow) do
        if not connection:is_closed_by_peer() then return false end
      end
      return true
    end)
    assert.equal(500, g:status().counters.refused.tls)
    assert.equal(200, ask(old).status)
    for _, connection in ipairs(slow) do connection:close() end
    old:close()
    assert.has_nothing_left(g)
  end)

  it("is not waited for when the gateway stops", function()
    local g <close> = gateway.start { tls = true, constants = { handshake_ms = 600000 }, config = { limits = { drain = "10m" } } }
    local connection <close> = client.connect(g, { tls = false })
    connection:send_raw "\x16\x03\x01\x02"
    g:wait_status(function(status) return status.gauges.connections == 2 end)
    g:stop() -- the stop waits for the open handshake for 20 s
  end)
end)

describe("client certificates", function()
  local authority = certificates.make { subject = "/CN=Spec authority", is_authority = true }
  local stranger = certificates.make { subject = "/CN=stranger" }
  local robot = certificates.make({ subject = "/O=Example/CN=robot", sans = "URI:spiffe://example/robot" }, authority)

  local function start(need)
    local here = certificates.here()
    local g = gateway.start {
      config = { log = { audit = "audit.jsonl" }, listen = {
        { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem", client = need } },
      } },
      files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key, ["ca.pem"] = authority.own, ["robot.pem"] = robot.certificate,
        ["robot.key"] = robot.key, ["stranger.pem"] = stranger.certificate, ["stranger.key"] = stranger.key },
    }
    return g
  end

  -- HTTP status of a request, or the reason that there is none. In TLS 1.3 a client learns of a refusal only when it
  -- reads.
  local function knock(g, name, max)
    local tls = { name = "localhost", ca = g.dir .. "/cert.pem", max = max }
    if name then
      tls.certificate, tls.key = ("%s/%s.pem"):format(g.dir, name), ("%s/%s.key"):format(g.dir, name)
    end
    local ok, got = pcall(function()
      local connection <close> = client.connect(g, { tls = tls })
      return ask(connection).status
    end)
    return ok and got or got
  end

  for _, max in ipairs { "1.2", "1.3" } do
    it("that are required are shown, or the handshake fails, TLS " .. max, function()
      local g <close> = start()
      assert.equal(200, knock(g, "robot", max))
      assert.matches(max == "1.3" and "certificate required" or "handshake failure", knock(g, nil, max))
      assert.matches("unknown ca", knock(g, "stranger", max))
      assert.equal(200, knock(g, "robot", max))
      assert.equal(2, g:status().counters.refused.tls)
      for _, why in ipairs { "no client certificate", "self%-signed certificate" } do
        wait.for_fact("the audit's line", 10, function()
          local audit <close> = assert(io.open(g.dir .. "/audit.jsonl"))
          return audit:read("a"):find('"event":"refused","address":"127.0.0.1","why":"' .. why)
        end)
      end
      assert.has_nothing_left(g)
    end)

    it("that are optional are valid, or absent, TLS " .. max, function()
      local g <close> = start "optional"
      assert.equal(200, knock(g, "robot", max))
      assert.equal(200, knock(g, nil, max))
      assert.matches("unknown ca", knock(g, "stranger", max))
      assert.has_nothing_left(g)
    end)
  end

  -- The fields of `request.tls` for a client with the certificate `made` (nil: none), at a listener that requests
  -- client certificates.
  local function seen_as(made, max)
    local here = certificates.here()
    local g <close> = gateway.start {
      config = { listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem", client = "optional" } } } },
      files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key, ["ca.pem"] = authority.own, ["mine.pem"] = made and made.certificate,
        ["mine.key"] = made and made.key },
      scripts = {
        ["auth/main.lua"] = [[return auth { function(request)
          local tls = request.tls
          return { id = tls and tls.subject or "nobody", claims = tls and { subject = tls.subject, issuer = tls.issuer, serial = tls.serial,
            fingerprint = tls.fingerprint, sans = tls.sans, expires = tls.expires } }
        end }]],
        ["tools/who.lua"] = [[return tool { "Who.", function(_, call) return { id = call.principal.id, claims = call.principal.claims } end }]],
      },
    }
    local tls = { name = "localhost", ca = g.dir .. "/cert.pem", max = max }
    if made then tls.certificate, tls.key = g.dir .. "/mine.pem", g.dir .. "/mine.key" end
    g.tls = tls
    local me = g:client "2026-07-28"
    local first = me:result("tools/call", { name = "who", arguments = {} }).structuredContent
    me:close()
    local old <close> = client.connect(g)
    ask(old)
    tls.resume = old
    local resumed <close> = client.connect(g)
    assert.is_true(resumed.tls:facts().resumed)
    me = g:client "2026-07-28"
    local again = me:result("tools/call", { name = "who", arguments = {} }).structuredContent
    me:close()
    assert.same(first, again)
    return first
  end

  it("are given to auth scripts, also in a TLS session that is resumed", function()
    local made = certificates.make({ subject = "/C=DE/O=Ex\\/ample, Inc./CN=r\u{f6}bot\\+1", serial = "0xCAFE0123",
      sans = "DNS:robot.example,URI:spiffe://example/robot,email:a@example.org,IP:192.0.2.7,IP:2001:db8::7" }, authority)
    for _, max in ipairs { "1.2", "1.3" } do
      local got = seen_as(made, max)
      assert.equal("CN=r\u{f6}bot\\+1,O=Ex/ample\\, Inc.,C=DE", got.id)
      assert.same({
        subject = got.id, issuer = "CN=Spec authority", serial = "CAFE0123", fingerprint = certificates.fingerprint(made.own),
        expires = certificates.expires(made.own),
        sans = { "DNS:robot.example", "URI:spiffe://example/robot", "EMAIL:a@example.org", "IP:192.0.2.7", "IP:2001:db8::7" },
      }, got.claims)
    end
  end)

  it("are absent for auth scripts when the client has none; subjects are escaped, and unsafe names left out", function()
    assert.equal("nobody", seen_as(nil).id)
    local made = certificates.make({ subject = "/CN=a\nCN=admin", sans = "DNS:a b,DNS:fine.example" }, authority)
    local got = seen_as(made)
    assert.equal("CN=a\\0ACN=admin", got.id)
    assert.same({ "DNS:fine.example" }, got.claims.sans)
  end)
end)
