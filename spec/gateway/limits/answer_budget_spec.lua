-- limits.answers: the bytes of answers that wait for clients to read them, of all clients together.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local beat = require "spec.helpers.beat"
local client = require "spec.helpers.client"
local http2 = require "spec.helpers.http2"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local MIB = 1024 * 1024
local scripts = {
  ["tools/large.lua"] = [[local text = ("x"):rep(7000000)
return tool { "Much.", function() return text end }]],
  ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return args.text end }',
}

local body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
  .. '"io.modelcontextprotocol/clientCapabilities":{}},"name":"large","arguments":{}}}'
local headers = {
  Accept = wire.both, ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28", ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = "large",
}

-- A call for 7 MB whose client reads nothing.
local function ask(g, options)
  local connection = client.connect(g, options or { buffer = 4096 })
  connection:pause()
  connection:send { method = "POST", path = "/mcp", headers = headers, body = body }
  return connection
end

describe("two hundred clients that do not read 7 MB each", function()
  it("hold at most limits.answers and a quarter, and lose their answers to clients that read", function()
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer's build makes too few answers before the time of the calls is over" end
    local g <close> = gateway.start {
      scripts = scripts, env = memory.environment(), config = { limits = { answers = "32MiB" } }, workers = 2,
    }
    local before, most = g:rss(), 0
    local connections = {}
    for i = 1, 200 do
      connections[i] = ask(g)
      if i % 10 == 0 then
        local status = g:status()
        most = math.max(most, status.gauges.queue_bytes)
        assert.is_true(g:rss() - before < 200 * MIB, ("%d MiB more"):format((g:rss() - before) // MIB))
      end
    end
    g:wait_status(function(status) return status.counters.calls + status.counters.refused.answers >= 200 end, 90)
    -- the count falls below the limit when the readers that took nothing for a second are ended
    g:wait_status(function(status)
      most = math.max(most, status.gauges.queue_bytes)
      return status.gauges.queue_bytes <= 32 * MIB and status.counters.dropped.answers > 0
    end, 90)
    assert.is_true(most < 64 * MIB, most)
    local echo <close> = g:client "2026-07-28"
    local answer -- the last of the two hundred answers may again exceed the limit
    wait.for_fact(function() return "an answer, not " .. tostring(answer) end, 20, function()
      local _, result = pcall(echo.result, echo, "tools/call", { name = "echo", arguments = { text = "abc" } })
      answer = type(result) == "table" and result.content[1].text or result
      return answer == "abc"
    end)
    for _, connection in ipairs(connections) do connection:close() end
    echo:close()
    assert.has_nothing_left(g)
  end)

  it("are refused with Retry-After while no memory has been freed yet", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { answers = "1MiB" } }, workers = 1 }
    local stalled <close> = ask(g)
    g:wait_status(function(status) return status.gauges.queue_bytes > MIB end)
    local response = wire.post(g, body, headers)
    assert.equal(503, response.status)
    assert.matches("^%d+$", response.headers["retry-after"])
    assert.equal("too many answers wait for clients to read them: try again later", response:json().error.message)
    assert.equal(1, g:status().counters.refused.answers)
    wait.for_fact("room", 10, function() return wire.post(g, body, headers).status == 200 end)
    assert.equal(1, g:status().counters.dropped.answers)
    stalled:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a reader that takes all it can", function()
  it("gets its large answer while others stall", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { answers = "8MiB" } }, workers = 1 }
    local connections = {}
    for i = 1, 10 do
      connections[i] = ask(g)
      local response
      wait.for_fact("an answer", 10, function()
        response = wire.post(g, body, headers)
        return response.status == 200
      end)
      assert.equal(7000000, #response:json().result.content[1].text)
    end
    for _, connection in ipairs(connections) do connection:close() end
    assert.has_nothing_left(g)
  end)
end)

describe("a client of a Unix socket that stops reading", function()
  it("loses its connection after a while, short as the answers are", function()
    local path = os.tmpname()
    os.remove(path)
    local g <close> = gateway.start { scripts = scripts, constants = { stall_ms = 1000 }, config = { listen = { "127.0.0.1:0", "unix:" .. path } } }
    local lines = { "POST /mcp HTTP/1.1", "Host: localhost" }
    for name, value in pairs(headers) do lines[#lines + 1] = name .. ": " .. value:gsub("large", "echo") end
    local message = body:gsub('"large","arguments":{}', '"echo","arguments":{"text":"' .. ("x"):rep(60000) .. '"}')
    local request = table.concat(lines, "\r\n") .. "\r\nContent-Length: " .. #message .. "\r\n\r\n" .. message
    local idle = g:status().gauges.connections
    local pipe, connected = uv.new_pipe(false), false
    pipe:connect(path, function(err)
      assert(not err, err)
      connected = true
    end)
    wait.for_fact("a connection", 20, function() return connected end)
    pipe:write(request:rep(100), function() end)
    g:wait_status(function(status) return status.counters.calls >= 2 end)
    g:wait_status(function(status) return status.gauges.connections == idle end, 10)
    assert.is_true(g:status().counters.calls < 100)
    pipe:close()
    assert.has_nothing_left(g)
  end)
end)

describe("answers below 64 KiB that nobody reads", function()
  local small = { ["tools/small.lua"] = 'return tool { "Little.", function() return ("x"):rep(30000) end }' }
  local message, all = body:gsub("large", "small"), {}
  for name, value in pairs(headers) do all[name] = value:gsub("large", "small") end

  local function assert_bounded(most, limit)
    assert.is_true(most <= limit + limit // 2 + 65536, ("%.1f of %.1f MiB"):format(most / MIB, limit / MIB))
  end

  it("are within limits.answers and a half over HTTP/2, where a client may open no window", function()
    local limit = 16 * MIB
    local g <close> = gateway.start { config = http2.config { limits = { answers = "16MiB", bodies = "1GiB" } }, scripts = small,
      env = memory.environment() }
    local before, most, peers = g:rss(), 0, {}
    for i = 1, 40 do
      peers[i] = http2.connect(g, { settings = { [http2.INITIAL_WINDOW_SIZE] = 0 } })
      for _ = 1, 95 do peers[i]:post(message, all) end
      if i % 4 == 0 then
        peers[i]:is_alive()
        most = math.max(most, g:status().gauges.queue_bytes)
      end
    end
    g:wait_status(function(status)
      most = math.max(most, status.gauges.queue_bytes)
      -- some calls are refused for limits.calls_in_flight if the machine is slower than the requests arrive
      local refused = status.counters.refused
      return status.counters.calls + refused.answers + refused.calls >= 40 * 95
    end, 30)
    assert.is_true(most > limit // 2, most)
    assert_bounded(most, limit)
    local more = g:rss() - before -- includes the memory of the requests, which limits.bodies counts
    if not beat.is_sanitized() then assert.is_true(more < limit + limit // 2 + 40 * 95 * 16384, ("%.0f MiB more"):format(more / MIB)) end
    for _, peer in ipairs(peers) do peer:close() end
    assert.has_nothing_left(g)
  end)

  it("are within them over HTTP/1.1, where the kernel takes no more", function()
    local path = os.tmpname()
    os.remove(path)
    local g <close> = gateway.start { scripts = small, workers = 1,
      config = { listen = { "127.0.0.1:0", "unix:" .. path }, limits = { answers = "1MiB" } } }
    local lines = { "POST /mcp HTTP/1.1", "Host: localhost", "Content-Length: " .. #message }
    for name, value in pairs(all) do lines[#lines + 1] = name .. ": " .. value end
    local request = (table.concat(lines, "\r\n") .. "\r\n\r\n" .. message):rep(20)
    local most, pipes, connected = 0, {}, 0
    for i = 1, 60 do
      pipes[i] = uv.new_pipe(false)
      pipes[i]:connect(path, function(err)
        assert(not err, err)
        connected = connected + 1
        pipes[i]:write(request, function() end)
      end)
    end
    g:wait_status(function(status)
      most = math.max(most, status.gauges.queue_bytes)
      return connected == 60 and status.counters.refused.answers + status.counters.dropped.answers > 0
    end, 20)
    -- readers that have taken nothing for a second make room
    g:wait_status(function(status)
      most = math.max(most, status.gauges.queue_bytes)
      return status.gauges.queue_bytes <= MIB + MIB // 4
    end, 20)
    assert_bounded(most, MIB)
    for _, pipe in ipairs(pipes) do pipe:close() end
    assert.has_nothing_left(g)
  end)
end)

describe("an answer that is larger than all of limits.answers", function()
  it("is sent, while little else waits", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { answers = "1MiB" } }, workers = 1 }
    for _ = 1, 3 do assert.equal(7000000, #wire.post(g, body, headers):json().result.content[1].text) end
    assert.equal(0, g:status().counters.dropped.answers)
    assert.has_nothing_left(g)
  end)
end)

describe("the answers of a batch", function()
  local batched = {
    ["tools/large.lua"] = 'local text = ("x"):rep(700000) return tool { "Much.", function() return text end }',
    ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(60) end }',
  }

  it("count in limits.answers while they wait for the last one; those that do not fit become errors", function()
    local g <close> = gateway.start { workers = 1, scripts = batched, config = { limits = { answers = "1MiB" } } }
    local c = g:client "2025-03-26"
    local messages = { wire.message(1, "tools/call", { name = "hold" }) }
    for id = 2, 5 do messages[id] = wire.message(id, "tools/call", { name = "large" }) end
    local connection <close> = client.connect(g)
    connection:send { method = "POST", path = "/mcp", headers = c:headers(), body = messages }
    local status = g:wait_status(function(now) return now.counters.dropped.answers == 2 end)
    assert.is_true(status.gauges.queue_bytes > 1400000 and status.gauges.queue_bytes <= MIB + MIB // 2, status.gauges.queue_bytes)
    c:notify("notifications/cancelled", { requestId = 1 })
    local whole, refused = 0, 0
    for _, answer in ipairs(connection:read_response():json()) do
      if answer.result then
        assert.equal(700000, #answer.result.content[1].text)
        whole = whole + 1
      else
        assert.equal("too many answers wait for clients to read them: try again later", answer.error.message)
        assert.is_true(answer.id >= 2 and answer.id <= 5)
        refused = refused + 1
      end
    end
    assert.same({ 2, 2 }, { whole, refused })
    g:wait_status(function(now) return now.gauges.queue_bytes == 0 end)
    c:delete()
    c:close()
    connection:close()
    assert.has_nothing_left(g)
  end)
end)
