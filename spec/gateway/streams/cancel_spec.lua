-- What cancels a call, and what does not: in 2026-07-28 the end of its stream, over HTTP+SSE the end of the session's
-- stream, in the stateful revisions `notifications/cancelled` and the end of the session. After a cancellation the
-- closers of the call have run, and the call sends no more messages.
-- proves: work of a cancelled call ends 2024-11-05 sse
-- proves: work of a cancelled call ends 2025-03-26.. http
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local config = { heartbeat = "60s" }

-- `patient` waits for a long time; `brief` for a short time; `held` until `go` is called; `stubborn` catches every
-- error that it can.
local scripts = {
  ["tools/patient.lua"] = [[return tool { "Waits long.", input = { as = t.string { default = "" } }, function(args, call)
    local outer <close> = closing(function() log.info("outer closed", { as = args.as }) end)
    local inner <close> = closing(function() log.info("inner closed", { as = args.as, cancelled = call.cancelled }) end)
    call:progress(1)
    log.info("waits", { as = args.as })
    sleep(60)
    log.info("went on", { as = args.as })
    call:progress(2)
    return "too late"
  end }]],
  ["tools/brief.lua"] = [[return tool { "Waits a little.", function(_, call)
    call:progress(1)
    log.info "waits"
    sleep(0.3)
    call:progress(2)
    log.info("finished", { cancelled = call.cancelled })
    return "done"
  end }]],
  ["tools/held.lua"] = [[return tool { "Waits.", input = { n = t.integer }, function(args, call)
    call:progress(1)
    repeat sleep(0.01) until store.get("go" .. args.n)
    call:progress(2)
    log.info("finished", { cancelled = call.cancelled })
    return "done"
  end }]],
  ["tools/go.lua"] = 'return tool { "Lets go.", input = { n = t.integer }, function(args) store.set("go" .. args.n, true) return "gone" end }',
  ["tools/stubborn.lua"] = [[return tool { "Does not want to end.", function(_, call)
    local gate <close> = closing(function() log.info "gate closed" end)
    call:progress(1)
    local function on() return coroutine.wrap(function() pcall(sleep, 60) return 1 end)() end
    for i = 1, 10 do pcall(on) log.info "went on" end
    return "too late"
  end }]],
}

local told = { progressToken = "p" }

local function has(g, text)
  return g:log():find(text, 1, true) ~= nil
end

local function leave(me)
  if me.delete then
    me:delete()
  end
  me:close()
end

local departures = { FIN = "close", RST = "reset", ["a half-close"] = "fin" }

for how, depart in pairs(departures) do
  describe("a 2026-07-28 call whose stream ends by " .. how, function()
    it("is cancelled, with the innermost <close> handler first, whether an event was sent before or not", function()
      local g <close> = gateway.start { config = config, scripts = scripts }
      local me = g:client "2026-07-28"
      for round, meta in ipairs { told, {} } do
        local as = "round" .. round
        local stream = me:open("tools/call", { name = "patient", arguments = { as = as }, _meta = meta })
        g:wait_log("waits", { as = as })
        if meta == told then
          stream:wait "notifications/progress"
        end
        stream.connection[depart](stream.connection)
        g:wait_log("outer closed", { as = as })
        g:wait_log("inner closed", { as = as, cancelled = "true" })
        local log = g:log()
        assert.is_true(log:find("inner closed%s+as=" .. as) < log:find("outer closed%s+as=" .. as))
        stream:close()
      end
      g:wait_log("call cancelled", { why = "disconnected", method = "tools/call" })
      assert.is_false(has(g, "went on"))
      assert.equal(2, g:status().counters.tool_aborted.gone)
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("is cancelled also when the connection has brought its next request before", function()
      local g <close> = gateway.start { config = config, scripts = scripts, workers = 1 }
      local me = g:client "2026-07-28"
      local stream = me:open("tools/call", { name = "patient", _meta = told })
      stream:wait "notifications/progress"
      stream.connection:send { method = "GET", path = "/mcp" }
      me:call("go", { n = 1 }) -- the worker has looked at its connections since
      stream.connection[depart](stream.connection)
      g:wait_log "outer closed"
      g:wait_log("call cancelled", { why = "disconnected", method = "tools/call" })
      stream:close()
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("is cancelled also when its script swallows errors, in coroutines of its own too", function()
      local g <close> = gateway.start { config = config, scripts = scripts }
      local me = g:client "2026-07-28"
      local stream = me:open("tools/call", { name = "stubborn", _meta = told })
      stream:wait "notifications/progress"
      stream.connection[depart](stream.connection)
      g:wait_log "gate closed"
      assert.is_false(has(g, "went on"))
      leave(me)
      assert.has_nothing_left(g)
    end)
  end)

  for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
    describe("a " .. revision .. " call whose stream ends by " .. how, function()
      it("runs to its end, whether an event was sent before or not", function()
        local g <close> = gateway.start { config = config, scripts = scripts }
        local me = g:client(revision)
        for count, meta in ipairs { told, {} } do
          local before = g:status().gauges.connections
          local stream = me:open("tools/call", { name = "held", arguments = { n = count }, _meta = meta })
          if meta == told then
            stream:wait "notifications/progress"
          else
            g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
          end
          stream.connection[depart](stream.connection)
          g:wait_status(function(status) return status.gauges.connections == before end)
          me:result("tools/call", { name = "go", arguments = { n = count } })
          g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end)
          wait.for_fact("the call to finish", 20, function() -- the log is written a moment later
            return select(2, g:log():gsub("finished%s+cancelled=false", "")) == count
          end)
          stream:close()
        end
        local counters = g:status().counters
        for reason, count in pairs(counters.tool_aborted) do assert.equal(0, count, reason) end
        assert.equal(1, counters.dropped.gone) -- the answer without a stream could not be sent; the other one is kept
        assert.same({}, me:result "ping")
        leave(me)
        assert.has_nothing_left(g)
      end)
    end)
  end

  describe("an HTTP+SSE session whose stream ends by " .. how, function()
    it("cancels its calls, on any worker", function()
      local g <close> = gateway.start { config = config, scripts = scripts, workers = 4 }
      local me = g:client "2024-11-05"
      for i = 1, 8 do
        local connection = client.connect(g)
        local call = me:message("tools/call", { name = "patient", arguments = { as = "call" .. i }, _meta = told })
        assert.equal(202, connection:request({ method = "POST", path = me.endpoint, body = call }).status)
        connection:close()
        g:wait_log("waits", { as = "call" .. i })
      end
      me.stream[depart](me.stream)
      for i = 1, 8 do
        g:wait_log("outer closed", { as = "call" .. i })
      end
      assert.is_false(has(g, "went on"))
      assert.equal(404, wire.post(g, wire.message(99, "ping"), nil, me.endpoint).status)
      assert.equal(8, g:status().counters.tool_aborted.gone)
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end

describe("DELETE of a session", function()
  it("cancels its calls and answers the clients that wait", function()
    local g <close> = gateway.start { config = config, scripts = scripts, workers = 4 }
    local me = g:client "2025-11-25"
    local streams = {}
    for i = 1, 6 do
      streams[i] = me:open("tools/call", { name = "patient", arguments = { as = "call" .. i }, _meta = i % 2 == 0 and told or nil })
      g:wait_log("waits", { as = "call" .. i })
    end
    assert.equal(204, me:delete().status)
    for i, stream in ipairs(streams) do
      g:wait_log("outer closed", { as = "call" .. i })
      assert.equal(-32603, stream:answer().error.code)
    end
    assert.is_false(has(g, "went on"))
    me:close()
    assert.has_nothing_left(g)
  end)
end)

for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" } do
  describe("notifications/cancelled in " .. revision, function()
    it("finds the call on any worker, and no message about it follows", function()
      local g <close> = gateway.start { config = config, scripts = scripts, workers = 4 }
      local me = g:client(revision)
      for round = 1, 12 do
        local as = "round" .. round
        local connection = client.connect(g) -- separate connections, so that the kernel picks the workers
        local call = me:message("tools/call", { name = "patient", arguments = { as = as }, _meta = round % 2 == 0 and told or nil })
        connection:send { method = "POST", path = me.endpoint or "/mcp", headers = me:headers(call), body = call }
        g:wait_log("waits", { as = as })
        local other = client.connect(g)
        local note = { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = call.id, reason = "enough" } }
        assert.equal(202, other:request({ method = "POST", path = me.endpoint or "/mcp", headers = me:headers(note), body = note }).status)
        g:wait_log("inner closed", { as = as, cancelled = "true" })
        g:wait_log("outer closed", { as = as })
        local carrier = connection
        if me.endpoint then
          assert.equal(202, connection:read_response().status)
          assert.same({}, me:result "ping")
          carrier = me.stream
        else
          assert.equal(200, connection:read_response().status) -- HTTP requires a response: an event stream that ends
        end
        for _, message in ipairs(carrier:messages()) do
          assert.not_equal(call.id, message.id)
        end
        connection:close()
        other:close()
      end
      assert.equal(12, g:status().counters.tool_aborted.cancelled)
      assert.is_false(has(g, "went on"))
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("has no effect if the call is unknown, has ended or is another client's, or if no id is given", function()
      local g <close> = gateway.start { config = config, scripts = scripts, workers = 1 }
      local me, other = g:client(revision), g:client(revision)
      other.ids = me.ids
      local stream = me:open("tools/call", { name = "brief", _meta = told })
      stream:wait "notifications/progress"
      assert.equal(202, other:notify("notifications/cancelled", { requestId = stream.id }).status)
      for _, params in ipairs { { requestId = 4711 }, { requestId = stream.id - 1 }, { requestId = tostring(stream.id) }, {}, { requestId = {} } } do
        assert.equal(202, me:notify("notifications/cancelled", params).status)
      end
      assert.equal(202, me:notify("notifications/cancelled").status)
      assert.equal("done", stream:answer().result.content[1].text)
      assert.equal(202, me:notify("notifications/cancelled", { requestId = stream.id }).status)
      assert.same({}, me:result "ping")
      assert.equal(0, g:status().counters.tool_aborted.cancelled)
      leave(me)
      leave(other)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("initialize", function()
  it("cannot be cancelled over HTTP+SSE, where the session exists before it (B-75)", function()
    local g <close> = gateway.start { config = config, workers = 4 }
    for round = 1, 20 do
      local me = g:client("2024-11-05", { initialize = false })
      local hello, note = wire.initialize_message("2024-11-05", round), { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = round } }
      local first, second = client.connect(g), client.connect(g)
      first:send { method = "POST", path = me.endpoint, body = hello }
      if round % 2 == 0 then first:send { method = "POST", path = me.endpoint, body = note } end -- sent right after the request of `first`
      second:send { method = "POST", path = me.endpoint, body = note }
      assert.equal("2024-11-05", me.stream:wait_event(round).json.result.protocolVersion)
      assert.equal(202, first:read_response().status)
      assert.equal(202, second:read_response().status)
      assert.same({}, me:result "ping")
      first:close()
      second:close()
      me:close()
    end
    assert.equal(0, g:status().counters.tool_aborted.cancelled)
    assert.has_nothing_left(g)
  end)

  it("cannot be cancelled over Streamable HTTP, where no session exists yet (B-75)", function()
    local g <close> = gateway.start { config = config, workers = 4 }
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
      local connection, headers = client.connect(g), { Accept = wire.both }
      local note = { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = 7 } }
      connection:send { method = "POST", path = "/mcp", headers = headers, body = wire.initialize_message(revision, 7) }
      connection:send { method = "POST", path = "/mcp", headers = headers, body = note }
      local answer = connection:read_response()
      assert.equal(revision, answer:json().result.protocolVersion)
      assert.equal(400, connection:read_response().status)
      headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
      assert.equal(202, connection:request({ method = "POST", path = "/mcp", headers = headers, body = note }).status)
      assert.same({}, connection:request({ method = "POST", path = "/mcp", headers = headers, body = wire.message(8, "ping") }):json().result)
      connection:close()
      wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = headers["Mcp-Session-Id"] })
    end
    assert.equal(0, g:status().counters.tool_aborted.cancelled)
    assert.has_nothing_left(g)
  end)
end)

describe("notifications/cancelled in 2026-07-28", function()
  it("is accepted and has no effect: a client cancels a call by closing its stream", function()
    local g <close> = gateway.start { config = config, scripts = scripts, workers = 1 }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "brief", _meta = told })
    stream:wait "notifications/progress"
    assert.equal(202, me:notify("notifications/cancelled", { requestId = stream.id, _meta = wire.meta() }).status)
    assert.equal("done", stream:answer().result.content[1].text)
    leave(me)
    assert.has_nothing_left(g)
  end)
end)

describe("a client that disconnects while its answer is written", function()
  it("stops no other call, 300 times", function()
    local g <close> = gateway.start { config = config, workers = 2, scripts = {
      ["tools/quick.lua"] = 'return tool { "Quick.", function(_, call) call:progress(1) sleep(0) call:progress(2) return "x" end }',
    } }
    local new, old = g:client "2026-07-28", g:client "2025-11-25"
    for round = 1, 150 do
      for _, me in ipairs { new, old } do
        local stream = me:open("tools/call", { name = "quick", _meta = told })
        for _ = 1, round % 4 do
          uv.run "nowait"
        end
        if round % 2 == 0 then stream:reset() else stream:close() end
      end
    end
    assert.same({}, old:result "ping")
    leave(new)
    leave(old)
    assert.has_nothing_left(g)
  end)
end)
