-- limits.bodies: the memory of all requests that are being received or answered, counted before any authentication.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
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
local function begin_body(g, length, size, framing)
  local connection = client.connect(g)
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
    local lines = { "POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Accept: " .. wire.both, "Content-Length: " .. #body }
    for name, value in pairs(mirrored "echo") do lines[#lines + 1] = name .. ": " .. value end
    first:send_raw(table.concat(lines, "\r\n") .. "\r\n\r\n" .. body:sub(1, 600 * 1024))
    g:wait_status(function(status) return status.gauges.body_bytes >= 600 * 1024 end)
    local response = wire.post(g, body, mirrored "echo")
    assert.equal(503, response.status)
    assert.matches("^%d+$", response.headers["retry-after"])
    assert.equal("close", response.headers.connection)
    assert.equal(1, g:status().counters.refused.bodies)
    first:send_raw(body:sub(600 * 1024 + 1))
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
      connections[i] = client.connect(g, { from = "127.0.0." .. 2 + i // 2 % 16 }) -- one alone leaves room to others
      connections[i]:send_raw(("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: %s"):format(("s"):rep(i % 2 == 0 and 20 or 6000)))
    end
    wait.for_fact("many to be refused", 10, function() return g:status().counters.refused.bodies >= 150 end)
    assert.is_true(gauge(g) <= limit + limit // 8, gauge(g))
    assert.is_true(gauge(g) >= limit, gauge(g))
    -- what arrives at once, and is answered at once, is still served
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
    local closed = 0
    wait.for_fact("most to be refused, or closed behind the answer", 10, function()
      closed = 0
      for _, connection in ipairs(connections) do closed = closed + (connection.eof and 1 or 0) end
      return closed >= 14 and gauge(g) >= MIB // 2
    end)
    assert.is_true(gauge(g) <= MIB + MIB // 8, gauge(g))
    for _, connection in ipairs(connections) do connection:close() end
    assert.has_nothing_left(g)
  end)

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
    -- an answer ends the count, on a connection that stays
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
end)
