-- Limits on clients: each limit refuses with an error of its own, exactly at its value, and other clients are not
-- disturbed. B-64: the limit of a body.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local scripts = { ["tools/hold.lua"] = 'return tool { "Holds.", function() log.info "holds" sleep(60) end }' }

-- A request of exactly as many bytes as the argument says.
local function body_of(size)
  local head, tail = '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"', '"}}'
  return head .. ("x"):rep(size - #head - #tail) .. tail
end

local function chunked(body, size)
  local parts = {}
  for i = 1, #body, size do
    local part = body:sub(i, i + size - 1)
    parts[#parts + 1] = ("%x\r\n%s\r\n"):format(#part, part)
  end
  return table.concat(parts) .. "0\r\n\r\n"
end

describe("limits.body", function()
  it("is the longest body that is taken, to the byte, with a length or in chunks", function()
    local g <close> = gateway.start { config = { limits = { body = "8KiB" } } }
    local session = wire.initialize(g, "2025-11-25")
    local me = g:client "2024-11-05"
    for size, status in pairs { [8191] = 200, [8192] = 200, [8193] = 413, [100000] = 413 } do
      local body = body_of(size)
      local response = wire.post(g, body, { ["Mcp-Session-Id"] = session })
      assert.equal(status, response.status, size .. " bytes")
      assert.equal(status == 200 and 202 or status, wire.post(g, body, nil, me.endpoint).status)
      for _, piece in ipairs { 1000, 8192, 100000 } do
        local connection <close> = client.connect(g)
        connection:send { method = "POST", path = "/mcp", body = chunked(body, piece), headers = {
          Accept = wire.both, ["Content-Type"] = "application/json", ["Mcp-Session-Id"] = session, ["Transfer-Encoding"] = "chunked",
        } }
        assert.equal(status, connection:read_head().status, ("%d bytes in chunks of %d"):format(size, piece))
      end
    end
    me:close()
    wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session })
    assert.has_nothing_left(g)
  end)

  it("refuses a body by its Content-Length, before it arrives", function()
    local g <close> = gateway.start { config = { limits = { body = "8KiB" } } }
    local connection <close> = client.connect(g)
    connection:send { method = "POST", path = "/mcp", headers = { ["Content-Type"] = "application/json", ["Content-Length"] = "99999999999" }, body = "{" }
    assert.equal(413, connection:read_head().status)
    connection:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a request that is answered before all of it has arrived", function()
  local text = ("x"):rep(9 << 20)
  local CHUNKED <const> = "Transfer-Encoding: chunked"
  local requests = {
    ["a length above limits.body"] = { 413, "Content-Length: " .. #text, text },
    ["chunks above limits.body"] = { 413, CHUNKED, chunked(text, 1 << 20) },
    ["broken chunks"] = { 400, CHUNKED, "zz\r\n" .. text },
    ["a coding that nobody knows"] = { 400, "Transfer-Encoding: rot13", text },
    ["an expectation that nobody knows"] = { 417, "Expect: the worst\r\nContent-Length: " .. #text, text },
    ["a header line that is none"] = { 400, "a b: c", text },
  }

  -- Sends all of the text, and reads then. Returns the status of the answer; nil, an error of sending.
  local function send_first(g, bytes)
    local tcp, sent, came = uv.new_tcp(), nil, ""
    tcp:connect("127.0.0.1", g.port, function(err)
      assert(not err, err)
      tcp:write(bytes, function(fault) sent = fault or "all" end)
    end)
    wait.for_fact("the end of the request", 20, function() return sent end)
    tcp:read_start(function(_, more) came = came .. (more or "") end)
    if sent == "all" then wait.for_fact("the answer", 20, function() return came:find("\r\n\r\n", 1, true) end) end
    tcp:close()
    return tonumber(came:match "^HTTP/1.1 (%d+)"), sent
  end

  it("is taken to its end, so that its client can read the answer", function()
    local g <close> = gateway.start { workers = 1 }
    for name, row in pairs(requests) do
      local head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" .. row[2] .. "\r\n\r\n"
      assert.same({ row[1], "all" }, { send_first(g, head .. row[3]) }, name)
    end
    assert.has_nothing_left(g)
  end)
end)

describe("the limit of headers", function()
  it("is the most that headers may take: 431 above, and the gateway goes on", function()
    local g <close> = gateway.start { constants = { headers = 4096 } }
    for size, status in pairs { [100] = 400, [3000] = 400, [4096] = 431, [20000] = 431 } do
      local response = wire.post(g, wire.message(1, "ping"), { ["X-Padding"] = ("x"):rep(size) })
      assert.equal(status, response.status, size .. " bytes")
    end
    local many = {}
    for i = 1, 60 do
      many[i] = { "X-" .. i, ("x"):rep(100) }
    end
    assert.equal(431, wire.post(g, wire.message(1, "ping"), many).status)
    assert.equal(431, wire.post(g, wire.message(1, "ping"), nil, "/mcp?" .. ("x"):rep(5000)).status)
    assert.has_nothing_left(g)
  end)
end)

describe("limits.calls_in_flight", function()
  it("is counted over all eras; the next call is refused until one has ended", function()
    local g <close> = gateway.start { config = { limits = { calls_in_flight = 3 } }, scripts = scripts }
    local sse, http, newest = g:client "2024-11-05", g:client "2025-11-25", g:client "2026-07-28"
    local streams = {}
    for _, me in ipairs { sse, http, newest } do
      streams[me] = me:open("tools/call", { name = "hold" })
    end
    g:wait_status(function(status)
      return status.gauges.requests_in_flight == 3
    end)

    for _, me in ipairs { http, newest } do
      local answer, response = me:call("tools/call", { name = "hold" })
      assert.equal(503, response.status)
      assert.truthy(tonumber(response.headers["retry-after"]))
      assert.truthy(answer.error.message)
    end
    local session, response = wire.initialize(g, "2025-11-25")
    assert.is_nil(session)
    assert.equal(503, response.status)
    local answer
    answer, response = sse:call "ping"
    assert.equal(202, response.status)
    assert.equal(-32603, answer.error.code)
    assert.equal(202, http:notify("notifications/cancelled", { requestId = streams[http].id }).status) -- a notification is not a call
    assert.equal(4, g:status().counters.refused.calls)

    for _, me in ipairs { sse, http } do
      -- the place of a call is free a moment after its answer
      g:wait_status(function(status) return status.gauges.requests_in_flight == 2 end)
      assert.same({}, me:result "ping")
    end
    http:delete()
    for _, me in ipairs { sse, http, newest } do
      me:close()
    end
    assert.has_nothing_left(g)
  end)
end)

describe("limits.connections", function()
  it("lets the next connection wait until one closes, and then serves it", function()
    local g <close> = gateway.start { config = { limits = { connections = 4 } }, scripts = scripts }
    local all = {}
    for i = 1, 4 do
      all[i] = g:client "2026-07-28"
      all[i]:open("tools/call", { name = "hold" })
    end
    g:wait_status(function(status) return status.gauges.requests_in_flight == 4 end)
    local late = client.connect(g):send { path = "/nowhere" }
    wait.quietly(0.3, function()
      return not late:is_closed_by_peer() and #late:messages() == 0 and late.responses[1] and "it was served"
    end)
    assert.equal(4, g:status().gauges.requests_in_flight)
    all[2]:close()
    assert.equal(404, late:read_response().status)
    for _, me in ipairs(all) do me:close() end
    late:close()
    assert.is_true(g:status().counters.refused.connections > 0)
    assert.has_nothing_left(g)
  end)

  it("ends the oldest connection that is idle for one that waits, and none before", function()
    local g <close> = gateway.start { config = { limits = { connections = 4 } }, workers = 1 }
    local all = {}
    for i = 1, 4 do
      all[i] = client.connect(g)
      assert.equal(404, all[i]:request({ path = "/nowhere" }).status)
    end
    for _, connection in ipairs(all) do assert.equal(404, connection:request({ path = "/nowhere" }).status) end
    local late = client.connect(g)
    assert.equal(404, late:request({ path = "/nowhere" }).status)
    all[1]:wait_closed()
    for i = 2, 4 do assert.equal(404, all[i]:request({ path = "/nowhere" }).status) end
    for i = 2, 4 do all[i]:close() end
    late:close()
    assert.has_nothing_left(g)
  end)

  it("leaves a connection for the operator", function()
    local g <close> = gateway.start { config = { limits = { connections = 2 } } }
    local all = {}
    for i = 1, 2 do
      all[i] = client.connect(g)
      assert.equal(404, all[i]:request({ path = "/nowhere" }).status)
    end
    assert.equal(2, g:status().gauges.connections - 1) -- one less: the connection that asks for the status
    for _, connection in ipairs(all) do
      connection:close()
    end
    assert.has_nothing_left(g)
  end)
end)

describe("limits.request_time", function()
  it("ends a connection whose request does not come, or comes too slowly; not one that waits for an answer", function()
    local g <close> = gateway.start { config = { limits = { request_time = "400ms" } }, scripts = {
      ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(1.2) return "done" end }',
    } }
    local me = g:client "2025-11-25"
    local get = me:get_stream()
    local answered = me:open("tools/call", { name = "wait" })
    local cases = {
      ["nothing at all"] = "",
      ["half a line"] = "POST /mc",
      ["half the headers"] = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-",
      ["half a body"] = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
      ["half a chunk"] = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{",
    }
    local connections = {}
    for what, bytes in pairs(cases) do
      connections[what] = client.connect(g):send_raw(bytes)
    end
    for what, connection in pairs(connections) do
      local ok, why = pcall(connection.wait_closed, connection, 10)
      assert.is_true(ok, what .. ": " .. tostring(why))
      connection:close()
    end
    assert.equal("done", answered:answer().result.content[1].text)
    assert.equal(200, get:head().status)
    assert.is_false(get.connection:is_closed_by_peer())
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)
end)
