-- call:detach closes the client's connection in the middle of a call, at 2025-11-25 (S-30): the client resumes the
-- stream later.
-- proves: a connection closed by the gateway while its call goes on 2025-11-25 http
local gateway = require "spec.helpers.gateway"
local resume = require "spec.helpers.resume"

local scripts = resume.scripts

local function away(me, seconds)
  return me:open("tools/call", { name = "away", arguments = { seconds = seconds }, _meta = { progressToken = "away" } })
end

local function leave(me)
  me:delete()
  me:close()
end

describe("call:detach at 2025-11-25", function()
  it("sends an event id and a retry time and ends the connection; the answer comes on the resumed stream", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    local me = g:client "2025-11-25"
    for _ = 1, 8 do
      local stream = away(me, 0.25)
      stream.connection:wait_end()
      local seen = {}
      for _, event in ipairs(stream.connection.events) do
        if not event.comment then
          seen[#seen + 1] = event
        end
      end
      assert.equal("", seen[1].data)
      assert.is_truthy(seen[1].id)
      assert.equal("250", seen[2].retry)
      assert.equal(2, #seen)
      assert.same({ 1, "away: true" }, resume.words(resume.all(resume.after(me, seen[1].id))))
    end
    leave(me)
    assert.has_nothing_left(g)
  end)

  it("works again on the resumed connection", function()
    local g <close> = gateway.start { workers = 4, scripts = { ["tools/twice.lua"] = [[return tool { "Twice.", function(_, call)
      call:progress(1)
      for i = 2, 4 do
        sleep(0.1)
        call:progress(i)
        assert(call:detach(0))
      end
      return "done"
    end }]] } }
    local me = g:client "2025-11-25"
    for _ = 1, 4 do
      local words, last = {}, nil
      local stream = me:open("tools/call", { name = "twice", _meta = { progressToken = 1 } })
      repeat
        for _, event in ipairs(resume.all(stream)) do
          last = event.id
          words[#words + 1] = resume.word(event)
        end
        stream = resume.after(me, last)
      until words[#words] == "done"
      stream:close()
      assert.same({ "priming", 1, 2, 3, 4, "done" }, words)
    end
    leave(me)
    assert.has_nothing_left(g)
  end)

  it("has no effect for a client that has already disconnected", function()
    local g <close> = gateway.start { scripts = { ["tools/late.lua"] = [[return tool { "Late.", function(_, call)
      call:progress(1)
      sleep(0.2)
      return "away: " .. tostring(call:detach())
    end }]] } }
    local me = g:client "2025-11-25"
    local stream = me:open("tools/call", { name = "late", _meta = { progressToken = 1 } })
    local last = stream:wait_event(resume.step(1)).id
    stream:close()
    g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end)
    assert.same({ "away: true" }, resume.words(resume.all(resume.after(me, last))))
    leave(me)
    assert.has_nothing_left(g)
  end)
end)

for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2026-07-28" } do
  describe("call:detach at " .. revision, function()
    it("has no effect, and returns false", function()
      local g <close> = gateway.start { scripts = scripts }
      local me = g:client(revision)
      assert.equal("away: false", away(me):answer().result.content[1].text)
      if me.delete then
        me:delete()
      end
      me:close()
      assert.has_nothing_left(g)
    end)
  end)
end

describe("call:detach", function()
  it("refuses times below 0 or above a day", function()
    local g <close> = gateway.start { scripts = { ["tools/wrong.lua"] = [[return tool { "Wrong.", input = { n = t.integer }, function(args, call)
      local wrong = { -1, "soon", 0/0, 1e9 }
      return tostring(select(2, pcall(call.detach, call, wrong[args.n])))
    end }]] } }
    local me = g:client "2025-11-25"
    for n = 1, 4 do
      local text = me:result("tools/call", { name = "wrong", arguments = { n = n } }).content[1].text
      assert.is_truthy(text:find("0 to 86400", 1, true), text)
    end
    leave(me)
    assert.has_nothing_left(g)
  end)
end)
