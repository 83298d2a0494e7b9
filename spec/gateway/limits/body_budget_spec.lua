-- limits.bodies: the memory of all requests that are being received or answered, counted before any authentication.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local http2 = require "spec.helpers.http2"
local client = require "spec.helpers.client"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local MIB = 1024 * 1024
local scripts = {
  ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return #args.text end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", input = { text = t.string }, function() log.info "holds" sleep(60) end }',
  ["tools/nap.lua"] = 'return tool { "Waits.", input = { text = t.string }, function(args) sleep(0.05) return #args.text end }',
}

-- A connection that has sent `size` of the `length` bytes of a body, without credentials.
local function begin_body(g, length, size, framing, before)
  local connection = client.connect(g, { before = before })
  connection.asked = { "POST" }
  local head = framing or ("Content-Length: %d"):format(length)
  connection:send_raw(("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: %s\r\n%s\r\n\r\n"):format(wire.both, head))
  connection:send_raw(("x"):rep(size))
  return connection
end

local function call(name, size)
  return ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    .. '"io.modelcontextprotocol/clientCapabilities":{}},"name":"%s","arguments":{"text":"%s"}}}'):format(name, ("x"):rep(size))
end

local function mirrored(name)
  return { ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name }
end

local PROXY <const> = "PROXY TCP4 127.0.0.2 127.0.0.1 4711 443\r\n"

-- Where the first bytes of a request are read before libh2o asks for them: the keys of the address, what is sent before
-- the request, and how much of 1 MiB leaves no room for 40,000 bytes more.
local earlier = {
  ["to see whether they are HTTP/2"] = { { http2 = "on" }, "", 870 },
  ["with the PROXY header"] = { { proxy_protocol = "on", trusted_proxies = { "127.0.0.1" } }, PROXY, 1000 },
  ["with the request before"] = { {}, "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" },
}

local function start_at(keys)
  local listen = { address = "127.0.0.1:0" }
  for key, value in pairs(keys) do listen[key] = value end
  return gateway.start { scripts = scripts, workers = 1, config = { listen = { listen }, auth = "none", limits = { bodies = "1MiB" } } }
end

-- The bytes of a request.
local function request_of(name, body)
  local lines = { "POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Accept: " .. wire.both, "Content-Length: " .. #body }
  for key, value in pairs(mirrored(name)) do lines[#lines + 1] = key .. ": " .. value end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. body
end

local function gauge(g) return g:status().gauges.body_bytes end

describe("limits.bodies", function()
  it("bounds the bytes held for the bodies of three hundred clients that are not authenticated", function()
    local g <close> = gateway.start {
      scripts = scripts, env = memory.environment(), config = { limits = { bodies = "32MiB", request_time = "20s" } },
    }
    local before, most = g:rss(), 0
    local connections = {}
    for i = 1, 300 do
      connections[i] = begin_body(g, 4 * MIB, MIB)
      if i % 20 == 0 then
        most = math.max(most, gauge(g))
        assert.is_true(g:rss() - before < 80 * MIB, ("%d MiB more"):format((g:rss() - before) // MIB))
      end
    end
    local refused = 0
    wait.for_fact("most of them to be refused", 20, function()
      refused = g:status().counters.refused.bodies or 0
      most = math.max(most, gauge(g))
      return refused >= 290 - 32
    end)
    assert.is_true(most <= 32 * MIB + 8 * MIB, most)
    assert.is_true(g:rss() - before < 80 * MIB)
    local answered = 0
    for _, connection in ipairs(connections) do
      uv.run "nowait"
      local ok, response = pcall(connection.read_response, connection, 0)
      if ok then
        assert.equal(503, response.status)
        assert.matches("^%d+$", response.headers["retry-after"])
        answered = answered + 1
      end
    end
    assert.is_true(answered > 200, answered .. " read their refusal")
    -- small requests are still answered
    local echo <close> = g:client "2026-07-28"
    assert.equal("3", echo:result("tools/call", { name = "echo", arguments = { text = "abc" } }).content[1].text)
    for _, connection in ipairs(connections) do connection:close() end
    echo:close()
    g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
    assert.has_nothing_left(g)
  end)

  it("leaves alone the bodies that were within it", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { bodies = "1MiB" } } }
    local body = call("echo", 700 * 1024)
    local first <close> = client.connect(g)
    first.asked = { "POST" }
    local request = request_of("echo", body)
    first:send_raw(request:sub(1, 600 * 1024))
    g:wait_status(function(status) return status.gauges.body_bytes > 590 * 1024 end)
    local response = wire.post(g, body, mirrored "echo")
    assert.equal(503, response.status)
    assert.matches("^%d+$", response.headers["retry-after"])
    assert.equal("close", response.headers.connection)
    assert.equal(1, g:status().counters.refused.bodies)
    first:send_raw(request:sub(600 * 1024 + 1))
    assert.equal(200, first:read_response().status)
    g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
    assert.equal(200, wire.post(g, body, mirrored "echo").status)
    first:close()
    assert.has_nothing_left(g)
  end)

  it("counts a request until it is answered", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { bodies = "1MiB" } } }
    local connection <close> = client.connect(g)
    local headers = mirrored "hold"
    headers.Accept, headers["Content-Type"] = wire.both, "application/json"
    connection:send { method = "POST", path = "/mcp", headers = headers, body = call("hold", 700 * 1024) }
    g:wait_log "holds"
    assert.is_true(gauge(g) > 700 * 1024)
    assert.equal(503, wire.post(g, call("echo", 700 * 1024), mirrored "echo").status)
    connection:close()
    g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
    assert.has_nothing_left(g)
  end)

  it("counts chunks, and requests behind each other on one connection", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { bodies = "1MiB" } } }
    local chunks <close> = begin_body(g, 0, 0, "Transfer-Encoding: chunked")
    chunks:send_raw("100000\r\n" .. ("x"):rep(0x100000))
    assert.equal(503, chunks:read_response().status)
    local body = call("echo", 400 * 1024)
    local both <close> = client.connect(g)
    local headers = mirrored "echo"
    headers.Accept, headers["Content-Type"] = wire.both, "application/json"
    for _ = 1, 2 do both:send { method = "POST", path = "/mcp", headers = headers, body = body } end
    for _ = 1, 2 do assert.equal(200, both:read_response().status) end
    g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
    local continued <close> = begin_body(g, MIB + 4096, 0, ("Content-Length: %d\r\nExpect: 100-continue"):format(MIB + 4096))
    continued:send_raw(("x"):rep(MIB + 4095))
    assert.equal(503, continued:read_response().status)
    for _, connection in ipairs { chunks, both, continued } do connection:close() end
    assert.has_nothing_left(g)
  end)

  it("counts small requests that arrive bit by bit, and lets them have an eighth more than large ones", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { bodies = "2MiB" } } }
    local limit, connections = 2 * MIB, {}
    for i = 1, 400 do
      -- from 16 addresses: one address may use only a part of limits.bodies
      connections[i] = client.connect(g, { from = "127.0.0." .. 2 + i // 2 % 16 })
      connections[i]:send_raw(("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: %s"):format(("s"):rep(i % 2 == 0 and 20 or 6000)))
    end
    wait.for_fact("many to be refused", 10, function() return g:status().counters.refused.bodies >= 150 end)
    assert.is_true(gauge(g) <= limit + limit // 8, gauge(g))
    assert.is_true(gauge(g) >= limit, gauge(g))
    -- A request whose body arrives at once and that is answered at once is still served.
    local echo <close> = g:client "2026-07-28"
    assert.equal("3", echo:result("tools/call", { name = "echo", arguments = { text = "abc" } }).content[1].text)
    for _, connection in ipairs(connections) do connection:close() end
    echo:close()
    assert.has_nothing_left(g)
  end)

  it("counts what came behind a request that has been answered", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { bodies = "1MiB" } } }
    local connections, get = {}, "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
    local half = ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n%s"):format(("x"):rep(200 * 1024))
    for i = 1, 20 do
      connections[i] = client.connect(g)
      connections[i].asked = { "GET", "POST" }
      connections[i]:send_raw(get .. half)
    end
    wait.for_fact("most to be refused", 10, function() return g:status().counters.refused.bodies >= 14 and gauge(g) >= MIB // 2 end)
    assert.is_true(gauge(g) <= MIB + MIB // 8, gauge(g))
    for _, connection in ipairs(connections) do connection:close() end
    assert.has_nothing_left(g)
  end)

  for where, how in pairs(earlier) do
    local held = how[3] and how[3] * 1024
    if held then it("answers a request with 503 that does not fit, also one whose first bytes were read " .. where, function()
      local g <close> = start_at(how[1])
      local first <close> = begin_body(g, MIB + 1, held, nil, how[2])
      g:wait_status(function(status) return status.gauges.body_bytes > held end)
      local second <close> = client.connect(g)
      second.asked = { "POST" }
      second:send_raw(how[2] .. ("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n%s"):format(("x"):rep(40000)))
      local response = second:read_response()
      assert.same({ 503, "close" }, { response.status, response.headers.connection })
      assert.equal(1, g:status().counters.refused.bodies)
      assert.is_true(gauge(g) < held + 20000)
      first:close()
      second:close()
      assert.has_nothing_left(g)
    end) end

    it("counts small requests that wait for their answers, also those that were read " .. where, function()
      local g <close> = start_at(how[1])
      local connections = {}
      for i = 1, 10 do
        connections[i] = client.connect(g)
        connections[i]:send_raw(how[2] .. request_of("hold", call("hold", 14000)))
      end
      g:wait_status(function(status) return status.gauges.requests_in_flight == 10 and status.gauges.body_bytes >= 10 * 14000 end)
      for _, connection in ipairs(connections) do connection:close() end
      assert.has_nothing_left(g)
    end)
  end

  it("counts requests that arrived at once and wait for their answers, however small they are", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { limits = { bodies = "1MiB" } } }
    local headers = mirrored "hold"
    headers.Accept, headers["Content-Type"] = wire.both, "application/json"
    local connections, most = {}, 0
    for i = 1, 200 do
      connections[i] = client.connect(g)
      connections[i]:send { method = "POST", path = "/mcp", headers = headers, body = call("hold", 14000) }
      if i % 20 == 0 then most = math.max(most, gauge(g)) end
    end
    wait.for_fact("many to be refused", 10, function()
      most = math.max(most, gauge(g))
      return g:status().counters.refused.bodies >= 100
    end)
    assert.is_true(most >= MIB - MIB // 8 and most <= MIB + 65536, most)
    for _, connection in ipairs(connections) do connection:close() end
    g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
    -- Once a request is answered its bytes count no more, even though its connection stays open.
    local echo <close> = g:client "2026-07-28"
    assert.equal("3", echo:result("tools/call", { name = "nap", arguments = { text = "abc" } }).content[1].text)
    assert.equal(0, gauge(g))
    echo:close()
    assert.has_nothing_left(g)
  end)

  it("counts the part of a record that has not arrived completely", function()
    local g <close> = gateway.start { tls = true, scripts = scripts, config = { limits = { bodies = "1MiB" } } }
    local connections = {}
    for i = 1, 20 do
      connections[i] = client.connect(g)
      connections[i].tls:write(("GET /nowhere HTTP/1.1\r\nHost: localhost\r\nX-Slow: %s"):format(("s"):rep(10000)))
      connections[i].tcp:write(connections[i].tls:take():sub(1, -100), function() end)
    end
    g:wait_status(function(status) return status.gauges.body_bytes >= 20 * 10000 end)
    for _, connection in ipairs(connections) do connection:close() end
    g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
  end)

  -- A call whose body has exactly this number of bytes.
  local function call_of(size) return call("echo", size - #call("echo", 0)) end

  for name, body in pairs { ["as large as"] = 1024, ["above seven eighths of"] = 960 } do
    it("takes the largest body from an address alone, where limits.body is " .. name .. " limits.bodies", function()
      local g <close> = gateway.start {
        scripts = scripts, workers = 1,
        config = http2.config { auth = "none", limits = { bodies = "1MiB", body = body .. "KiB" } },
      }
      for _ = 1, 2 do
        local whole <close> = client.connect(g)
        whole.asked = { "POST" }
        whole:send_raw(request_of("echo", call_of(body * 1024)))
        assert.equal(200, whole:read_response().status)
        local parts <close> = client.connect(g)
        parts.asked = { "POST" }
        local request = request_of("echo", call_of(body * 1024)):gsub("Content%-Length: %d+", "Transfer-Encoding: chunked", 1)
        local head, rest = request:match "^(.-\r\n\r\n)(.*)$"
        parts:send_raw(head .. ("%x\r\n%s\r\n0\r\n\r\n"):format(#rest, rest))
        assert.equal(200, parts:read_response().status)
        local peer <close> = http2.connect(g)
        assert.equal(200, peer:call(call_of(body * 1024), mirrored "echo").status)
        for _, connection in ipairs { whole, parts, peer } do connection:close() end
        g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
      end
      assert.equal(0, g:status().counters.refused.bodies)
    end)
  end

  it("leaves small requests room beside the largest body, and takes no second one", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { limits = { bodies = "1MiB", body = "1MiB" } } }
    local first <close> = begin_body(g, MIB, MIB - 1)
    g:wait_status(function(status) return status.gauges.body_bytes >= MIB - 1 end)
    assert.equal(503, wire.post(g, call_of(200000), mirrored "echo").status)
    local other <close> = client.connect(g, { from = "127.0.0.2" })
    other.asked = { "POST" }
    other:send_raw(request_of("echo", call_of(2000)))
    assert.equal(200, other:read_response().status)
    other:close()
    assert.equal(1, g:status().counters.refused.bodies)
    first:close()
    g:wait_status(function(status) return status.gauges.body_bytes == 0 end)
    assert.equal(200, wire.post(g, call_of(MIB), mirrored "echo").status)
    assert.has_nothing_left(g)
  end)

  it("keeps an eighth from an address whose other requests are held, and from bodies above limits.bodies", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1, config = { limits = { bodies = "1MiB", body = "1MiB" } } }
    local small <close> = begin_body(g, 100000, 50000)
    g:wait_status(function(status) return status.gauges.body_bytes >= 50000 end)
    assert.equal(503, wire.post(g, call_of(MIB - 80000), mirrored "echo").status)
    small:close()
    assert.has_nothing_left(g)
    local larger <close> = gateway.start { scripts = scripts, workers = 1, config = { limits = { bodies = "1MiB", body = "2MiB" } } }
    assert.equal(503, wire.post(larger, call_of(MIB - 80000), mirrored "echo").status)
  end)
end)
