-- Sessions end when no client uses them, are made only up to a cap, and have one event stream at a time.
-- proves: sessions that end 2024-11-05 sse
-- proves: sessions that end 2025-03-26..2025-11-25 http
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local function closed(g, reason, count)
  return g:wait_status(function(status)
    return status.counters.sessions_closed[reason] == count and status
  end)
end

local function leave(...)
  for _, me in ipairs { ... } do
    if me.delete then
      me:delete()
    end
    me:close()
  end
end

describe("a Streamable HTTP session that no client uses", function()
  it("ends after sessions.idle, and is 404 from then on", function()
    local g <close> = gateway.start { config = { sessions = { idle = "300ms" } } }
    local me
    local took = wait.timed(function()
      me = g:client "2025-11-25"
      closed(g, "idle", 1)
    end)
    assert.is_true(took >= wait.least(0.3), "it took " .. took)
    assert.equal(0, g:status().gauges.sessions.http)
    assert.equal(404, me:post(wire.message(7, "ping")).status)
    assert.equal(404, me:get_stream():head().status)
    assert.equal(404, me:delete().status)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("stays open while its client sends requests, reads a stream, or waits for a call", function()
    local g <close> = gateway.start { config = { sessions = { idle = "1500ms" } }, scripts = {
      ["tools/wait.lua"] = 'return tool { "Waits.", function() sleep(3.5) return "done" end }',
    } }
    local asking, listening, waiting, idle = g:client "2025-11-25", g:client "2025-11-25", g:client "2025-11-25", g:client "2025-11-25"
    local stream = listening:get_stream()
    assert.equal(200, stream:head().status)
    local call = waiting:open("tools/call", { name = "wait" })
    wait.for_fact("the long call's answer", 20, function() -- the call takes two idle times
      assert.same({}, asking:result "ping")
      call:messages()
      return call.connection.responses[1] and call.connection.responses[1].done
    end)
    local answer = call:answer()
    assert.equal("done", answer.result.content[1].text)
    assert.equal(1, g:status().counters.sessions_closed.idle) -- the session without requests
    assert.same({}, listening:result "ping")
    assert.same({}, waiting:result "ping")
    stream:close()
    closed(g, "idle", 4)
    assert.equal(404, asking:post(wire.message(7, "ping")).status)
    leave(asking, listening, waiting, idle)
    assert.has_nothing_left(g)
  end)
end)

describe("an HTTP+SSE client that does not initialize", function()
  it("loses its stream after a while; one that initializes in time keeps it", function()
    local g <close> = gateway.start { constants = { initialize_within_ms = 400 } }
    local good = g:client "2024-11-05"
    local late, pinging
    local took = wait.timed(function()
      late = g:client("2024-11-05", { initialize = false })
      pinging = g:client("2024-11-05", { initialize = false })
      assert.same({}, pinging:result "ping") -- a message that is not `initialize`
      late.stream:read_head()
      late.stream:wait_end(10)
      pinging.stream:wait_end(10)
    end)
    assert.is_true(took >= wait.least(0.4), "it took " .. took)
    closed(g, "uninitialized", 2)
    assert.equal(404, wire.post(g, wire.message(7, "ping"), nil, late.endpoint).status)
    assert.same({}, good:result "ping")
    assert.equal(1, g:status().gauges.sessions.sse)
    leave(good, late, pinging)
    assert.has_nothing_left(g)
  end)
end)

for key, words in pairs { max = "of the process", per_principal = "of a principal" } do
  describe("the cap on the sessions " .. words, function()
    it("refuses the next one with 429 and Retry-After, until one has ended", function()
      local g <close> = gateway.start { config = { sessions = { [key] = 3 } } }
      local first, second, third = g:client "2025-11-25", g:client "2025-03-26", g:client "2024-11-05"
      local session, response = wire.initialize(g, "2025-06-18")
      assert.is_nil(session)
      assert.equal(429, response.status)
      assert.truthy(tonumber(response.headers["retry-after"]))
      assert.truthy(response:json().error.message)
      response = wire.request(g, "GET", "/sse", { Accept = "text/event-stream" })
      assert.equal(429, response.status)
      assert.truthy(tonumber(response.headers["retry-after"]))
      assert.equal(2, g:status().counters.refused.sessions)

      for _, me in ipairs { first, second, third } do
        assert.same({}, me:result "ping")
      end
      local newest = g:client "2026-07-28" -- a request without a session
      assert.truthy(newest:result "server/discover")
      second:delete()
      local fourth = g:client "2025-06-18"
      assert.same({}, fourth:result "ping")
      third:close()
      closed(g, "gone", 1)
      local fifth = g:client "2024-11-05"
      assert.same({}, fifth:result "ping")
      leave(first, second, fourth, fifth, newest)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("the event stream of a Streamable HTTP session", function()
  it("has one reader: a second GET is 409, and 200 as soon as the first reader has disconnected", function()
    local g <close> = gateway.start { config = { heartbeat = "60s" }, workers = 4 }
    local me = g:client "2025-11-25"
    local stream = me:get_stream()
    assert.equal(200, stream:head().status)
    for round = 1, 30 do
      local other = me:get_stream()
      local head = other:head()
      assert.equal(409, head.status, "round " .. round)
      other:close()
      if round % 3 == 0 then stream:reset() elseif round % 3 == 1 then stream:close() else stream:fin() end
      local left = stream
      stream = me:get_stream()
      assert.equal(200, stream:head().status, "round " .. round)
      left:close()
    end
    stream:close()
    leave(me)
    assert.has_nothing_left(g)
  end)

  it("ends with the session", function()
    local g <close> = gateway.start { config = { heartbeat = "60s" }, workers = 4 }
    for _ = 1, 10 do
      local me = g:client "2025-11-25"
      local stream = me:get_stream()
      assert.equal(200, stream:head().status)
      assert.equal(204, me:delete().status)
      stream.connection:wait_end()
      me:close()
    end
    assert.has_nothing_left(g)
  end)
end)

describe("a quiet stream", function()
  it("carries comments as a heartbeat; so does the stream of a call", function()
    local g <close> = gateway.start { config = { heartbeat = "150ms" }, scripts = {
      ["tools/wait.lua"] = 'return tool { "Waits.", function(_, call) call:progress(1) sleep(60) end }',
    } }
    local wanted = { name = "wait", _meta = { progressToken = 1 } }
    local old, new, newest = g:client "2024-11-05", g:client "2025-11-25", g:client "2026-07-28"
    local call, get, open = new:open("tools/call", wanted), new:get_stream(), newest:open("tools/call", wanted)
    assert.equal(200, get:head().status)
    call:wait "notifications/progress"
    open:wait "notifications/progress"
    for _, connection in ipairs { old.stream, get.connection, call.connection, open.connection } do
      assert.equal("ok", connection:wait_event("comment").comment)
      for _ = 1, 4 do assert.equal("", connection:wait_event("comment").comment) end
    end
    leave(old, new, newest)
    assert.has_nothing_left(g)
  end)
end)

-- Sends much progress, and lets other tasks run after every message.
local flood = { ["tools/flood.lua"] = [[return tool { "Says much.", input = { mib = t.number }, function(args, call)
  local gate <close> = closing(function() log.info "gate closed" end)
  local word = ("x"):rep(16384)
  for i = 1, args.mib * 64 do
    call:log("info", word)
    sleep(0)
  end
  log.info "said all"
  return "said all"
end }]] }

-- A call of `flood` whose client reads nothing.
local function start_flood(g, revision, mib)
  local me = g:client(revision, { buffer = 4096 })
  if revision ~= "2026-07-28" then
    me:result("logging/setLevel", { level = "info" })
  end
  local call = me:message("tools/call", {
    name = "flood", arguments = { mib = mib }, _meta = revision == "2026-07-28" and { ["io.modelcontextprotocol/logLevel"] = "info" } or nil,
  })
  local carrier = me.stream
  if carrier then
    carrier:pause()
    me:post(call)
  else
    carrier = client.connect(g, { buffer = 4096 })
    carrier:pause()
    carrier:send { method = "POST", path = "/mcp", headers = me:headers(call), body = call }
  end
  return me, carrier
end

for _, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
  describe("a " .. revision .. " reader that reads nothing", function()
    it("loses its stream when limits.stream_queue is full, and the queue is never longer", function()
      local g <close> = gateway.start { config = { limits = { stream_queue = "256KiB" } }, scripts = flood }
      -- Calls of 2025-11-25 outlive their streams. A call of 2024-11-05 may run on another worker than its stream; it
      -- goes on until the stream's worker has ended the stream.
      local outlives, crosses = revision == "2025-11-25", revision == "2024-11-05"
      local me, carrier = start_flood(g, revision, outlives and 48 or 1024)
      local most = 0
      g:wait_status(function(status)
        most = math.max(most, status.gauges.queue_bytes)
        return status.counters.streams_ended.slow == 1
      end, 60)
      -- If the call crosses workers, as many bytes again may be on their way from one to the other.
      assert.is_true(most <= (crosses and 2 or 1) * 256 * 1024, "queue_bytes was " .. most)
      if outlives then
        g:wait_log("said all", nil, 60)
        assert.same({}, me:result "ping")
      else
        g:wait_log "gate closed"
        assert.is_nil(g:log():find("said all", 1, true))
      end
      local counters = g:status().counters
      assert.equal(crosses and 1 or 0, counters.sessions_closed.slow)
      assert.is_true(counters.dropped.slow == 1 or crosses and counters.dropped.slow > 1, counters.dropped.slow)
      carrier:close()
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("loses its stream when it reads nothing for a while", function()
      local g <close> = gateway.start { constants = { stall_ms = 500 }, config = { limits = { stream_queue = "256MiB" } }, scripts = flood }
      local me, carrier = start_flood(g, revision, 48)
      g:wait_status(function(status)
        return status.counters.streams_ended.slow == 1
      end, 60)
      if revision == "2025-11-25" then
        g:wait_log("said all", nil, 60)
      end
      carrier:close()
      leave(me)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("a slow reader", function()
  it("keeps its stream and gets everything", function()
    local g <close> = gateway.start { constants = { stall_ms = 60000 }, config = { limits = { stream_queue = "4MiB" } }, scripts = {
      ["tools/flood.lua"] = [[return tool { "Says much.", function(_, call)
        for i = 1, 200 do call:log("info", i .. ("x"):rep(16384)) end
        return "said all"
      end }]],
    } }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "flood", _meta = { ["io.modelcontextprotocol/logLevel"] = "info" } }, { buffer = 4096 })
    stream.connection:pause()
    g:wait_status(function(status) -- all messages are sent, and wait for their reader
      return status.gauges.requests_in_flight == 0 and status.gauges.queue_bytes > 0
    end, 30)
    stream.connection:resume()
    assert.equal("said all", stream:answer(30).result.content[1].text)
    assert.equal(201, #stream:messages())
    assert.equal(0, g:status().counters.streams_ended.slow)
    leave(me)
    assert.has_nothing_left(g)
  end)
end)
