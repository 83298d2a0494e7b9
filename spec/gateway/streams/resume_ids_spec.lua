-- A Last-Event-ID that does not belong to the session, or whose later events are gone, is refused: no event is left out
-- silently, and no event of another session is sent (S-28; rows W-14, B-45, B-46).
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local resume = require "spec.helpers.resume"
local wire = require "spec.helpers.wire"

local scripts = resume.scripts

local function ask(g, me, ...)
  local headers = { { "Accept", "text/event-stream" }, { "Mcp-Session-Id", me.session } }
  for _, id in ipairs { ... } do
    headers[#headers + 1] = { "Last-Event-ID", id }
  end
  return client.request(g, { method = "GET", path = "/mcp", headers = headers })
end

local function leave(...)
  for _, me in ipairs { ... } do
    me:delete()
    me:close()
  end
end

describe("a Last-Event-ID that names no event", function()
  it("is refused with 400, for any text, and the gateway goes on", function()
    local g <close> = gateway.start { scripts = scripts }
    local me, other = g:client "2025-11-25", g:client "2025-11-25"
    local events = resume.all(resume.steps(me, 3))
    assert.equal("1-4", events[#events].id)
    resume.all(resume.steps(other, 1))
    assert.equal("2-0", resume.all(resume.steps(other, 1))[1].id)
    for _, id in ipairs {
      "1-5", "1-999999", "1--1", "-1-1", "1-9223372036854775808", "1-18446744073709551616", "18446744073709551617-1", "3-0", "0-0", "0-1",
      "2-0", -- this event belongs to the other session
      "", "1", "1-", "-1", "1-1-1", "1-01", "01-1", "1-1x", "x", "1 - 1", "+1-1", "1-1,1-2", "null", "\xc3\xa4-\xff", "1-1\t2",
      ("9"):rep(60000), ("1-1"):rep(20000),
    } do
      local response = ask(g, me, id)
      assert.equal(400, response.status, id:sub(1, 40))
      assert.equal(-32600, response:json().error.code)
      assert.is_truthy(response.body:find("Last-Event-ID", 1, true))
    end
    assert.equal(431, ask(g, me, ("9"):rep(66000)).status)
    assert.equal(400, ask(g, me, "1-1", "1-1").status)
    assert.equal(200, ask(g, me, " 1-4 ").status)
    assert.equal(404, ask(g, { session = ("0"):rep(36) }, "1-1").status)
    assert.same({}, me:result "ping")
    leave(me, other)
    assert.has_nothing_left(g)
  end)

  it("is ignored over HTTP+SSE, and refused with 405 in 2026-07-28", function()
    local g <close> = gateway.start { scripts = scripts }
    local connection <close> = client.connect(g)
    connection:send { method = "GET", path = "/sse", headers = { Accept = "text/event-stream", ["Last-Event-ID"] = "1-1" } }
    assert.is_nil(connection:wait_event("endpoint").id)
    assert.equal(405, wire.request(g, "GET", "/mcp", { ["MCP-Protocol-Version"] = "2026-07-28", ["Last-Event-ID"] = "1-1" }).status)
    connection:close()
    assert.has_nothing_left(g)
  end)
end)

describe("with sessions.replay off", function()
  it("events have no ids, and no stream can be resumed", function()
    local g <close> = gateway.start { scripts = scripts, config = { sessions = { replay = "off" } } }
    local me = g:client "2025-11-25"
    local own = me:get_stream()
    assert.equal(200, own:head().status)
    local stream = resume.steps(me, 2)
    stream.connection:wait_end()
    for _, event in ipairs(stream.connection.events) do
      assert.is_nil(event.id)
      assert.not_equal("", event.data)
    end
    assert.equal("away: false", me:result("tools/call", { name = "away" }).content[1].text)
    assert.equal(400, ask(g, me, "1-1").status)
    assert.same({}, own:messages())
    leave(me)
    assert.has_nothing_left(g)
  end)
end)

describe("the store of events", function()
  local function small(replay, constants)
    return gateway.start { scripts = scripts, constants = constants, config = { sessions = { replay = replay } } }
  end

  it("keeps the latest events of a session, and refuses requests for older ones", function()
    local g <close> = small { events = 10 }
    local me = g:client "2025-11-25"
    resume.all(resume.steps(me, 30)) -- the events have the ids 1-1 to 1-31
    for _, id in ipairs { "1-0", "1-1", "1-20" } do
      assert.equal(400, ask(g, me, id).status, id)
    end
    local words = resume.words(resume.all(resume.after(me, "1-21")))
    assert.same({ 22, 23, 24, 25, 26, 27, 28, 29, 30, "counted to 30" }, words)
    resume.all(resume.steps(me, 4)) -- five more: all streams of the session share its cap of events
    assert.equal(400, ask(g, me, "1-25").status)
    assert.equal(200, ask(g, me, "1-26").status)
    resume.all(resume.steps(me, 12))
    assert.equal(400, ask(g, me, "1-31").status)
    assert.equal(0, g:status().counters.dropped.replay)
    leave(me)
    assert.has_nothing_left(g)
  end)

  it("limits the bytes of a session, also while a client reads nothing, and does not store an event that is too large", function()
    local g <close> = gateway.start {
      constants = { replay_bytes = 65536, stall_ms = 60000 }, config = { sessions = { replay = { events = 100000 } }, limits = { stream_queue = "256KiB" } },
      scripts = { ["tools/pour.lua"] = [[return tool { "Pours.", input = { n = t.integer, bytes = t.integer }, function(args, call)
        local text = ("x"):rep(args.bytes)
        for i = 1, args.n do call:progress(i, args.n, text) if i % 100 == 0 then sleep(0) end end
        return "poured"
      end }]] },
    }
    local me = g:client "2025-11-25"
    local function pour(n, bytes)
      return me:open("tools/call", { name = "pour", arguments = { n = n, bytes = bytes }, _meta = { progressToken = 1 } }, { buffer = 4096 })
    end
    local stream = pour(20000, 1000)
    local first = stream:wait_event(resume.step(1)).id
    stream.connection:pause()
    local most = 0
    g:wait_status(function(status)
      most = math.max(most, status.gauges.replay_bytes)
      return status.gauges.requests_in_flight == 0
    end, 30)
    assert.is_true(most > 50000 and most <= 65536, most)
    assert.equal(1, g:status().counters.streams_ended.slow)
    assert.equal(400, ask(g, me, first).status)
    assert.equal(400, ask(g, me, "1-19900").status)
    local events = resume.all(resume.after(me, "1-19990"))
    assert.same({ 11, "poured" }, { #events, resume.word(events[11]) })
    local large = pour(1, 70000)
    assert.equal("poured", large:answer().result.content[1].text)
    assert.equal(1, g:status().counters.dropped.replay)
    assert.equal(400, ask(g, me, "2-0").status)
    assert.same({ "poured" }, resume.words(resume.all(resume.after(me, "2-1"))))
    stream:close()
    leave(me)
    assert.has_nothing_left(g)
  end)

  it("limits the bytes of all sessions by removing the oldest events", function()
    local g <close> = small(nil, { replay_total = 65536 })
    local people = {}
    for i = 1, 100 do
      people[i] = g:client "2025-11-25"
      resume.all(resume.steps(people[i], 40))
      assert.is_true(g:status().gauges.replay_bytes <= 65536)
      people[i]:close() -- closes its connections; the session stays
    end
    assert.equal(400, ask(g, people[1], "1-40").status)
    assert.equal("counted to 40", resume.words(resume.all(resume.after(people[100], "1-40")))[1])
    assert.is_true(g:status().counters.dropped.replay > 3000)
    leave(table.unpack(people))
    assert.has_nothing_left(g)
  end)

  it("sends a slow reader what it can take, and queues no more for it than for other readers", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { stream_queue = "4KiB" } } }
    local me = g:client "2025-11-25"
    local stream = resume.steps(me, 200, 2)
    local first = stream:wait_event(resume.step(1)).id
    stream:close()
    g:wait_log("counted", { n = 200 })
    local most = 0
    local back = resume.after(me, first)
    g:wait_status(function(status)
      most = math.max(most, status.gauges.queue_bytes)
      return status.gauges.streams_open == 0
    end)
    local words = resume.words(resume.all(back))
    assert.same({ 2, 200, "counted to 200" }, { words[1], #words, words[200] })
    assert.is_true(most <= 4096, most)
    assert.equal(0, g:status().counters.streams_ended.slow)
    leave(me)
    assert.has_nothing_left(g)
  end)
end)
