-- Channels to upstreams: one task of all workers opens a channel; channels that are lost, idle, of an ended session or
-- of a replaced upstream end.
local cjson = require "cjson.safe"
local low = require "spec.helpers.upstream.low"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local function echo(message, request, reply) low.answer(request, reply, message.params or {}) end

local function opened(up) return low.count(low.methods(up), "initialize") end

local function deleted(up) return low.count(low.methods(up), "DELETE") end

local function quiet(g)
  g:wait_status(function(status)
    local gauges = status.gauges
    return gauges.upstream_exchanges == 0 and gauges.upstream_takes == 0 and gauges.upstream_requests == 0
  end)
end

-- Calls of `code` on both workers at once; returns their values.
local function at_once(g, n, code)
  local one, two = low.workers(g, 2)
  local streams, values = {}, {}
  for i = 1, n do streams[i] = (i % 2 == 0 and one or two):open("tools/call", trusted.code((code:gsub("NUMBER", i)))) end
  for i = 1, n do values[i] = trusted.read(streams[i]:answer(30)) end
  for i = 1, n do streams[i]:close() end
  one:close()
  two:close()
  return values
end

describe("the channel of a key", function()
  it("is opened by one task of all workers, and used by all", function()
    local up <close> = low.server(echo)
    local g <close> = low.start { one = { url = up.url } }
    local values = at_once(g, 120, [[return kept.call("one", "same", "x", { params = { n = NUMBER } }).result]])
    for i = 1, 120 do assert.equal(i, cjson.decode(values[i]).n) end
    assert.equal(1, opened(up))
    quiet(g)
  end)

  it("goes to the next task when the one that opens it is cancelled", function()
    local first = true
    local up <close> = require "spec.helpers.stub".start(function(request, reply)
      if request.method == "DELETE" then return reply:send(200) end
      local message = cjson.decode(request.body)
      if message.method == "initialize" and first then
        first = false
        return
      end
      low.answer(request, reply, message.method == "initialize" and { protocolVersion = "2025-11-25" } or {})
    end)
    local g <close> = low.start { one = { url = up.url } }
    local one, two = low.workers(g, 2)
    local stuck = one:open("tools/call", trusted.code [[return kept.call("one", "k", "x").result]])
    wait.for_fact("the first initialize", 20, function() return opened(up) == 1 end)
    local waits = two:open("tools/call", trusted.code [[return kept.call("one", "k", "x").result]])
    g:wait_status(function(status) return status.gauges.upstream_takes == 1 end)
    stuck:hang_up()
    assert.equal("{}", (trusted.read(waits:answer())))
    assert.equal(2, opened(up))
    one:close()
    two:close()
    quiet(g)
  end)

  it("fails for all that wait when it cannot be opened, and rests for a while", function()
    local works = false
    local up <close> = require "spec.helpers.stub".start(function(request, reply)
      if not works then return reply:later(200, function() reply:send(500, nil, "") end) end
      low.answer(request, reply, { protocolVersion = "2025-11-25" })
    end)
    local g <close> = low.start { one = { url = up.url, circuit = { failures = 1000, open = "4s..4s" } } }
    local code = [[
      local event, failure = kept.call("one", "k", "x")
      return event and "answered" or failure.reason .. " " .. tostring((failure.retry_after or 0) > 0)]]
    for _, value in ipairs(at_once(g, 10, code)) do assert.matches("^[sd][to][aw]", value) end
    assert.equal(1, opened(up))
    local me = low.workers(g, 1)
    assert.equal("down true", trusted.run(me, code))
    assert.equal(1, opened(up))
    works = true
    wait.for_fact("the upstream to be used again", 20, function() return trusted.run(me, code) == "answered" end)
    assert.equal(2, opened(up))
    me:close()
  end)

  it("is replaced once when the upstream has lost its session, for 50 calls at once, again and again", function()
    local valid, ran, round = {}, {}, 0
    local up <close> = require "spec.helpers.stub".start(function(request, reply)
      if request.method == "DELETE" then return reply:send(200) end
      local message = cjson.decode(request.body)
      if message.method == "initialize" then
        round = round + 1
        valid["s" .. round] = true
        local body = cjson.encode { jsonrpc = "2.0", id = message.id, result = { protocolVersion = "2025-11-25" } }
        return reply:send(200, { ["content-type"] = "application/json", ["mcp-session-id"] = "s" .. round }, body)
      end
      if not valid[request.headers["mcp-session-id"]] then return reply:send(404, nil, "") end
      ran[message.params.n] = (ran[message.params.n] or 0) + 1
      low.answer(request, reply, message.params)
    end)
    local other <close> = low.server(echo)
    local g <close> = low.start { one = { url = up.url }, two = { url = other.url } }
    local me = low.workers(g, 1)
    trusted.run(me, [[return kept.call("one", "k", "x", { params = { n = 0 } }).result .. kept.call("two", "k", "x").result]])
    local code = [[
      for _ = 1, 3 do
        local channel = assert(kept.open("one", "k"))
        local event, failure = kept.request(channel, "x", { params = { n = "ROUND-NUMBER" } })
        if event then return event.result end
        assert(failure.status == 404 or failure.reason == "lost", failure.reason)
        channel:lost()
      end]]
    for i = 1, 5 do
      valid = {}
      for _, value in ipairs(at_once(g, 50, (code:gsub("ROUND", i)))) do assert.matches('"n":"' .. i .. "%-", value) end
      assert.equal(i + 1, round)
    end
    for name, times in pairs(ran) do assert.equal(1, times, name) end
    assert.equal(1, opened(other))
    assert.equal(0, deleted(up)) -- a lost session is not ended by a DELETE
    me:close()
    quiet(g)
  end)

  it("ends with a DELETE when it is idle, when its client's session ends, and when its task ends", function()
    local up <close> = low.server(echo)
    local g <close> = low.start { idle = { url = up.url, process = { idle_stop = "1s" } }, own = { url = up.url } }
    local me = low.workers(g, 1)
    trusted.run(me, [[return kept.call("own", "stays", "x").result]])
    trusted.run(me, [[
      local channel = kept.open("own", "once", { once = true })
      return kept.request(channel, "x").result]])
    wait.for_fact("the end of the task's channel", 20, function() return deleted(up) == 1 end)
    local stateful = g:client "2025-11-25"
    local result = stateful:call("tools/call", trusted.code(low.library))
    assert.is_nil(result.error)
    local code = trusted.code [[
      local channel = kept.open("own", "session-of-its-own", { own = call })
      return kept.request(channel, "x").result]]
    for _ = 1, 40 do
      result = trusted.read(stateful:call("tools/call", code))
    end
    assert.equal("{}", result)
    assert.equal(3, opened(up))
    stateful:delete()
    wait.for_fact("the end of the session's channel", 20, function() return deleted(up) == 2 end)
    assert.equal("s-session-of-its-own", up.requests[#up.requests].headers["mcp-session-id"])
    quiet(g)
    assert.equal(1, g:status().gauges.upstream_channels)
    me:close()
  end)
end)

describe("a session that the upstream opened for a channel", function()
  it("ends when the channel cannot be opened after all, and has its id on each message before that", function()
    local up <close> = low.server(function(_, _, reply) reply:send(500, nil, "") end)
    local g <close> = low.start { one = { url = up.url } }
    local me = low.workers(g, 1)
    assert.equal("status", trusted.run(me, [[
      local channel, state = host.upstream.channel("one", "k")
      assert(state == "claimed")
      assert(kept.request(channel, "initialize", { params = { key = "k" }, is_opening = true }).session == "s-k")
      local exchange <close> = channel:send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
      local event, failure = exchange:next()
      channel:failed(failure)
      return failure.reason]]))
    wait.for_fact("the DELETE", 20, function() return deleted(up) == 1 end)
    assert.equal("s-k", up.requests[2].headers["mcp-session-id"])
    assert.equal("s-k", up.requests[3].headers["mcp-session-id"])
    me:close()
  end)
end)

describe("the upstreams of a configuration", function()
  it("keep their channels over a reload that does not change the connection, and end them where it does", function()
    local up <close> = low.server(echo)
    local more <close> = low.server(echo)
    local g <close> = low.start { same = { url = up.url, timeout = "20s" }, changed = { url = up.url .. "/a" }, gone = { url = more.url } }
    local me = low.workers(g, 1)
    local code = [[
      local function call(name) return (kept.call(name, "k", "x") or { result = "-" }).result end
      return call "same" .. call "changed" .. call "gone"]]
    trusted.run(me, code)
    me:close()
    assert.equal(2, opened(up))
    local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
    local config = cjson.decode(file:read "a")
    config.upstreams = { same = { url = up.url, timeout = "30s" }, changed = { url = up.url .. "/b" } }
    local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
    out:write(cjson.encode(config))
    out:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    wait.for_fact("both DELETEs", 20, function() return deleted(up) == 1 and deleted(more) == 1 end)
    me = low.workers(g, 1)
    -- the code returns "-" at the end: there is no second value, the revision from which to look
    assert.matches("%-$", (trusted.run(me, code)))
    assert.equal(3, opened(up))
    me:close()
    quiet(g)
  end)

  it("are said goodbye to when the gateway stops, once its last call has ended", function()
    local finish
    local up <close> = low.server(function(message, request, reply)
      if message.method ~= "held" then return low.answer(request, reply, {}) end
      finish = function() low.answer(request, reply, {}) end
    end)
    local g <close> = low.start { one = { url = up.url } }
    local one, two = low.workers(g, 2)
    for i, me in ipairs { one, two } do trusted.run(me, ([[return kept.call("one", "k%d", "x").result]]):format(i)) end
    local held = two:open("tools/call", trusted.code [[
      assert(kept.call("one", "k1", "held"))
      return kept.call("one", "new", "x").result]])
    wait.for_fact("the call", 20, function() return finish end)
    g:signal "sigterm"
    g:wait_log "draining"
    finish()
    assert.equal("{}", (trusted.read(held:answer())))
    held:close()
    one:close()
    two:close()
    g:wait_exit()
    assert.equal(3, deleted(up))
  end)

  it("do not hold each other up: one that never answers keeps its own calls, and no others", function()
    local silent <close> = low.server(function() end)
    local up <close> = low.server(echo)
    local g <close> = low.start { silent = { url = silent.url, calls = 4, waiting = 4, timeout = "60s" }, one = { url = up.url } }
    local one, two = low.workers(g, 2)
    local streams = {}
    for i = 1, 8 do
      streams[i] = (i % 2 == 0 and one or two):open("tools/call", trusted.code [[return kept.call("silent", "k", "x").result]])
    end
    wait.for_fact("four calls", 20, function() return #low.methods(silent) == 5 end)
    g:wait_status(function(status) return status.upstreams.silent.waiting == 4 end)
    assert.equal("busy", trusted.run(one, [[return select(2, kept.call("silent", "k", "x")).reason]]))
    for _, value in ipairs(at_once(g, 100, [[return kept.call("one", "k", "x", { params = { n = NUMBER } }).result]])) do
      assert.matches('"n":', value)
    end
    for i = 1, 8 do streams[i]:hang_up() end
    quiet(g)
    one:close()
    two:close()
  end)

  it("are called no more while they fail, then by one task, and served again soon after they are back", function()
    local works, attempts = true, 0
    local up <close> = low.server(function(message, request, reply)
      attempts = attempts + 1
      if not works then return reply:close() end
      low.answer(request, reply, message.params or {})
    end)
    local other <close> = low.server(echo)
    local g <close> = low.start { one = { url = up.url, circuit = { failures = 3, open = "1s..1s" } }, two = { url = other.url } }
    local me = low.workers(g, 1)
    local code = [[
      local channel, state = kept.open("one", "k")
      if not channel then return state.outcome .. " " .. state.reason end
      local event, failure = kept.request(channel, "x")
      return event and "answered" or state .. " " .. failure.reason]]
    assert.equal("answered", trusted.run(me, code))
    works = false
    for _ = 1, 3 do assert.equal("open closed", trusted.run(me, code)) end
    assert.equal(4, attempts)
    for _ = 1, 20 do assert.equal("not_run down", trusted.run(me, code)) end
    assert.equal(4, attempts)
    assert.equal("{}", trusted.run(me, [[return kept.call("two", "k", "x").result]]))
    local state = trusted.run(me, [[for _, one in ipairs(host.upstream.status()) do if one.name == "one" then return one end end]])
    assert.equal("down", state.state)
    assert.truthy(state.error)
    wait.for_fact("a probe", 20, function() return trusted.run(me, code) == "probe closed" end)
    assert.equal(5, attempts)
    works = true
    wait.for_fact("the upstream to serve again", 20, function() return trusted.run(me, code) == "answered" end)
    assert.equal("answered", trusted.run(me, code))
    me:close()
  end)

  it("are probed by a task that had to wait for room, as soon as it has room", function()
    local works = true
    local up <close> = low.server(function(message, request, reply)
      if not works then return reply:close() end
      low.answer(request, reply, message.params or {})
    end)
    local other <close> = low.server(echo)
    local g <close> = low.start({ one = { url = up.url, open = "5m", circuit = { failures = 1, open = "1s..1s" } }, two = { url = other.url } },
      { workers = 1, constants = { upstream_evict_idle_ms = 3600000 }, config = { limits = { upstreams = { channels = 1 } } } })
    local me = low.workers(g, 1)
    works = false
    assert.equal("closed", trusted.run(me, [[
      local channel = kept.open("one", "k")
      local _, failure = kept.request(channel, "x")
      channel:lost()
      return failure.reason]]))
    works = true
    assert.is_true(trusted.run(me, [[return kept.open("two", "k") ~= nil]]))
    local waits = me:open("tools/call", trusted.code [[
      local channel, state
      repeat
        if state then host.time.sleep(0.02) end
        channel, state = kept.open("one", "other")
      until channel or state.reason ~= "down"
      return (channel and state or state.reason) .. " " .. (kept.request(channel, "x") and "answered" or "failed")]])
    g:wait_status(function(status) return status.gauges.upstream_takes == 1 end)
    trusted.run(me, [[local channel = kept.open("two", "k") channel:lost() return true]])
    assert.equal("claimed answered", (trusted.read(waits:answer(20))))
    assert.equal("closed", g:status().upstreams.one.circuit)
    me:close()
  end)

  it("are probed by the next task soon after one that began to was cancelled", function()
    local works, stuck = true, nil
    local up <close> = require "spec.helpers.stub".start(function(request, reply)
      if request.method == "DELETE" then return reply:send(200) end
      local message = cjson.decode(request.body)
      if works == "not" and message.method ~= "initialize" then return reply:close() end
      if works == "silent" then
        stuck = true
        return
      end
      low.answer(request, reply, message.method == "initialize" and { protocolVersion = "2025-11-25" } or {})
    end)
    local g <close> = low.start({ one = { url = up.url, open = "5m", circuit = { failures = 1, open = "1s..1s" } } }, { workers = 1 })
    local me = low.workers(g, 1)
    works = "not"
    assert.equal("closed", trusted.run(me, [[
      local channel = kept.open("one", "k")
      local _, failure = kept.request(channel, "x")
      channel:lost()
      return failure.reason]]))
    works = "silent"
    local code = [[
      local channel, state
      repeat
        if state then host.time.sleep(0.02) end
        channel, state = kept.open("one", "k")
      until channel or state.reason ~= "down"
      return kept.request(channel, "x") and "answered" or "failed"]]
    local first = me:open("tools/call", trusted.code(code))
    wait.for_fact("a probe", 20, function() return stuck end)
    assert.equal("probing", g:status().upstreams.one.circuit)
    works = true
    first:hang_up()
    assert.equal("answered", (trusted.read(me:open("tools/call", trusted.code(code)):answer(20))))
    me:close()
  end)

  it("run `calls` at once over all workers, let `waiting` wait in order, and refuse others as busy", function()
    local held = {}
    local up <close> = low.server(function(_, request, reply) held[#held + 1] = function() low.answer(request, reply, {}) end end)
    local g <close> = low.start { one = { url = up.url, calls = 2, waiting = 3 } }
    local one, two = low.workers(g, 2)
    trusted.run(one, [[return kept.open("one", "k") ~= nil]])
    local streams = {}
    for i = 1, 8 do
      streams[i] = (i % 2 == 0 and one or two):open("tools/call", trusted.code [[
        local event, failure = kept.call("one", "k", "x")
        return event and "answered" or failure.outcome .. " " .. failure.reason]])
    end
    g:wait_status(function(status) return status.counters.refused.upstream_busy == 3 end)
    wait.for_fact("two calls", 20, function() return #held == 2 end)
    for i = 1, 5 do
      wait.for_fact("call " .. i, 20, function() return held[i] end)
      held[i]()
    end
    local results = {}
    for i = 1, 8 do
      local said = trusted.read(streams[i]:answer())
      results[said] = (results[said] or 0) + 1
    end
    assert.same({ answered = 5, ["not_run busy"] = 3 }, results)
    one:close()
    two:close()
    quiet(g)
  end)

  it("have lists that all workers share, and that one task makes at a time", function()
    local g <close> = low.start { one = { url = "http://127.0.0.1:1/" } }
    local one, two = low.workers(g, 2)
    assert.is_nil(trusted.run(one, [[return host.upstream.catalogue("one", "all")]]))
    trusted.run(two, [[
      kept.heard = {}
      hearing.on("catalogue", function(text) kept.heard[#kept.heard + 1] = text end)
      return true]])
    assert.is_true(trusted.run(one, [[return host.upstream.publish("one", "all", "[1]")]]))
    assert.is_false(trusted.run(one, [[return host.upstream.publish("one", "all", "[1]")]]))
    assert.equal("[1]", trusted.run(two, [[return (host.upstream.catalogue("one", "all"))]]))
    wait.for_fact("the message", 20, function() return trusted.run(two, [[return kept.heard[1] ]]) == "one\0all" end)
    assert.equal(3, g:status().gauges.upstream_catalogue_bytes)
    assert.equal("unknown", trusted.run(one, [[return select(2, host.upstream.publish("none", "all", "[1]")).reason]]))
    local holds = one:open("tools/call", trusted.code [[
      local claim = host.upstream.claim("one", "all")
      kept.claimed = claim ~= nil
      host.time.sleep(60)
      return claim ~= nil]])
    wait.for_fact("the claim", 20, function()
      for _, me in ipairs { one, two } do
        if trusted.run(me, [[return kept.claimed]]) then return true end
      end
    end)
    assert.is_false(trusted.run(two, [[return host.upstream.claim("one", "all") ~= nil]]))
    holds:hang_up()
    wait.for_fact("the claim to be free", 20, function() return trusted.run(two, [[return host.upstream.claim("one", "all") ~= nil]]) end)
    one:close()
    two:close()
  end)
end)

describe("a task that is cancelled when it has just got a channel to open", function()
  it("gives it back at once", function()
    local up <close> = low.server(low.answer)
    local g <close> = low.start { one = { url = up.url, open = "2s" } }
    local me = low.workers(g, 1)
    -- both takes get their channels in one turn; the task of the first one ends the second one before that runs
    local word = trusted.run(me, [[
      local a, b = host.upstream.channel("one", "a"), host.upstream.channel("one", "b")
      host.task.parallel {
        function()
          host.time.sleep(0.01)
          a:release()
          b:release()
          return true
        end,
        function()
          host.upstream.channel("one", "a")
          return false
        end,
        function()
          host.upstream.channel("one", "b")
          return true
        end,
      }
      local channel, state = host.upstream.channel("one", "b")
      return channel and state or "refused: " .. state.reason]])
    assert.equal("claimed", word)
    me:close()
    g:wait_status(function(status) return status.upstreams.one.opening == 0 and status.gauges.upstream_takes == 0 end)
  end)
end)
