-- A Streamable HTTP client that loses the stream of a call reconnects with Last-Event-ID, to any worker, and gets the
-- later events of that stream, then new ones as they happen (S-27 to S-31; B-42, B-43, B-53).
-- proves: resumption 2025-03-26..2025-11-25 http
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local resume = require "spec.helpers.resume"
local wire = require "spec.helpers.wire"

local scripts = resume.scripts

local function leave(me)
  me:delete()
  me:close()
end

for revision, first in pairs { ["2025-03-26"] = "1-1", ["2025-06-18"] = "1-1", ["2025-11-25"] = "1-0" } do
  describe("the stream of a call at " .. revision, function()
    it("has event ids that name it, and begins with an empty event at 2025-11-25 alone", function()
      local g <close> = gateway.start { scripts = scripts }
      local me = g:client(revision)
      local own = me:get_stream()
      assert.equal(200, own:head().status)
      local events = resume.all(resume.steps(me, 3))
      assert.equal(first, events[1].id)
      assert.same(revision == "2025-11-25" and { "priming", 1, 2, 3, "counted to 3" } or { 1, 2, 3, "counted to 3" }, resume.words(events))
      local seen = {}
      for _, event in ipairs(resume.all(resume.steps(me, 2))) do
        assert.equal("2", event.id:match "^(%d+)%-%d+$")
        assert.is_nil(seen[event.id])
        seen[event.id] = true
      end
      if revision == "2025-11-25" then
        assert.equal("0-0", own:wait_event(function(event) return event.data == "" end).id)
      else
        assert.same({}, own:messages())
      end
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("goes on after the last event that its client saw, in order, to the answer, and then ends", function()
      local g <close> = gateway.start { scripts = scripts, workers = 4 }
      local me = g:client(revision)
      for round = 1, 8 do -- on the workers that the kernel picks
        local stream = resume.steps(me, 20, 5)
        local last = stream:wait_event(resume.step(7)).id
        stream[round % 2 == 0 and "reset" or "close"](stream)
        local rest = resume.after(me, last)
        assert.same({ 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, "counted to 20" }, resume.words(resume.all(rest)))
        rest:close()
      end
      assert.equal(0, g:status().counters.dropped.gone)
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("can be resumed from each of its events after its answer", function()
      local g <close> = gateway.start { scripts = scripts }
      local me = g:client(revision)
      local events = resume.all(resume.steps(me, 4))
      for i, event in ipairs(events) do
        local rest = resume.words(resume.all(resume.after(me, event.id)))
        assert.same(table.move(resume.words(events), i + 1, #events, 1, {}), rest)
      end
      leave(me)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("two calls of a session", function()
  it("are resumed separately: no event of one arrives on the stream of the other", function() -- B-43
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me = g:client "2025-11-25"
    local a, b = resume.steps(me, 30, 5), resume.steps(me, 31, 5)
    local last = a:wait_event(resume.step(3)).id
    b:wait_event(resume.step(3))
    a:close()
    local rest = resume.all(resume.after(me, last))
    for _, event in ipairs(rest) do
      assert.equal(last:match "^%d+", event.id:match "^%d+")
      assert.is_true(event.json.id == a.id or event.json.params.progressToken == "steps30")
    end
    assert.equal(28, #rest)
    assert.equal("counted to 30", resume.word(rest[28]))
    assert.equal("counted to 31", b:answer().result.content[1].text)
    leave(me)
    assert.has_nothing_left(g)
  end)
end)

describe("a client that reconnects while its old connection is still open", function()
  it("takes the stream over: the old connection ends", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me = g:client "2025-11-25"
    for _ = 1, 6 do
      local first = resume.steps(me, 40, 5)
      local last = first:wait_event(resume.step(5)).id
      local second = resume.after(me, last)
      last = second:wait_event(resume.step(10)).id
      local third = resume.after(me, last)
      first.connection:wait_end()
      second.connection:wait_end()
      local words = resume.words(resume.all(third))
      assert.same({ 11, 31, "counted to 40" }, { words[1], #words, words[31] })
      for _, old in ipairs { first, second } do
        assert.not_equal("counted to 40", resume.word(old.connection.events[#old.connection.events]))
      end
    end
    leave(me)
    assert.has_nothing_left(g)
  end)
end)

describe("a call that sends no message for long", function()
  it("gives its client at 2025-11-25 an event id to resume from, and runs on", function() -- B-53
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2025-11-25"
    local stream = me:open("tools/call", { name = "steps", arguments = { n = 1, ms = 800 } })
    local priming = stream:wait_event(function(event) return event.data == "" end)
    stream:reset()
    g:wait_log("counted", { n = 1 })
    assert.same({ "counted to 1" }, resume.words(resume.all(resume.after(me, priming.id))))
    for reason, count in pairs(g:status().counters.tool_aborted) do assert.equal(0, count, reason) end
    leave(me)
    assert.has_nothing_left(g)
  end)

  it("is cancelled in 2026-07-28, where events have no ids, when its stream is lost", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "steps", arguments = { n = 6000, ms = 5 }, _meta = { progressToken = 1 } })
    assert.is_nil(stream:wait_event(resume.step(3)).id)
    stream:reset()
    g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end) -- 30 s before the call's end
    assert.equal(1, g:status().counters.tool_aborted.gone)
    assert.is_nil(g:log():find("counted", 1, true))
    assert.equal(0, g:status().gauges.replay_bytes)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a question to a client that is away", function()
  it("waits and is answered when the client has reconnected", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me = g:client("2025-11-25", { capabilities = { elicitation = {} } })
    for round = 1, 6 do
      local stream = me:open("tools/call", { name = "ask", _meta = { progressToken = round } })
      local last = stream:wait_event(resume.step(1)).id
      stream:close()
      local back = resume.after(me, last)
      local question = back:wait_event "elicitation/create"
      back:close()
      local connection <close> = client.connect(g)
      local reply = { jsonrpc = "2.0", id = question.json.id, result = { action = "accept", content = { name = "Kim" } } }
      assert.equal(202, connection:request({ method = "POST", path = "/mcp", headers = me:headers(reply), body = reply }).status)
      assert.same({ "Kim" }, resume.words(resume.all(resume.after(me, question.id))))
    end
    leave(me)
    assert.has_nothing_left(g)
  end)
end)

describe("a resumed call", function()
  it("sends no more messages once it is cancelled, and its stream ends", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me = g:client "2025-11-25"
    for _ = 1, 6 do
      local stream = resume.steps(me, 5000, 5)
      local last = stream:wait_event(resume.step(2)).id
      stream:close()
      local back = resume.after(me, last)
      back:wait_event(resume.step(5))
      assert.equal(202, me:notify("notifications/cancelled", { requestId = stream.id }).status)
      for _, event in ipairs(resume.all(back)) do
        assert.is_nil(event.json.id)
      end
    end
    assert.equal(6, g:status().counters.tool_aborted.cancelled)
    leave(me)
    assert.has_nothing_left(g)
  end)

  it("ends with its session, and its stored events are freed", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me, away = g:client "2025-11-25", g:client "2025-11-25"
    local backs = {}
    for i = 1, 6 do
      local stream = resume.steps(me, 5000, 5)
      local last = stream:wait_event(resume.step(2)).id
      stream:close()
      backs[i] = resume.after(me, last)
      backs[i]:wait_event(resume.step(3))
    end
    local stream = resume.steps(away, 5000, 5)
    stream:wait_event(resume.step(2))
    stream:close()
    assert.is_true(g:status().gauges.replay_bytes > 0)
    me:delete()
    away:delete()
    for _, back in ipairs(backs) do
      local events = resume.all(back)
      assert.equal(-32603, resume.word(events[#events]))
    end
    assert.equal(404, wire.request(g, "GET", "/mcp", { Accept = "text/event-stream", ["Mcp-Session-Id"] = me.session, ["Last-Event-ID"] = "1-1" }).status)
    me:close()
    away:close()
    assert.has_nothing_left(g)
  end)
end)
