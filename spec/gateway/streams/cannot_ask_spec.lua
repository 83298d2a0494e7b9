-- A handler asks a client that cannot answer: it gets an error at once, or when the call's time limit is over, and no
-- question is left behind (B-79).
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
    local yes, why = call:elicit("sure", "Sure?", { yes = t.boolean })
    log.info("heard", { why = tostring(why) })
    return yes and "yes" or why
  end }]],
  ["tools/late.lua"] = [[return tool { "Asks when its stream is gone.", function(_, call)
    call:progress(1)
    sleep(0.2)
    local yes, why = call:elicit("sure", "Sure?", { yes = t.boolean })
    log.info("heard late", { why = tostring(why) })
    return yes and "yes" or why
  end }]],
  ["tools/needs.lua"] = [[return tool { "Needs to ask.", requires = { "elicitation" }, function() return "ran" end }]],
}

local able = { capabilities = { elicitation = { form = { [" "] = 1 } } } }

local function started(config) return gateway.start { scripts = scripts, config = config } end

describe("B-79 a question that no client can answer", function()
  it("is 'unsupported' at once where the client lacks the capability", function()
    local g <close> = started()
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local me = g:client(revision)
      assert.equal("unsupported", me:result("tools/call", { name = "ask" }).content[1].text, revision)
      if me.session then me:delete() end
      me:close()
    end
    assert.has_nothing_left(g)
  end)

  it("is error -32021 in 2026-07-28 where the tool requires the capability", function()
    local g <close> = started()
    local me = g:client "2026-07-28"
    local answer = me:call("tools/call", { name = "needs" })
    assert.equal(-32021, answer.error and answer.error.code)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("ends at the call's time limit where the client never answers", function()
    local g <close> = started { limits = { call = { time = "1s" } } }
    for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
      local me = g:client(revision, able)
      local stream = me:open("tools/call", { name = "ask" })
      stream:wait "elicitation/create"
      local answer = stream:answer()
      assert.equal(-32603, answer.error.code)
      assert.same({}, me:result "ping")
      g:wait_status(function(status) return status.gauges.tasks == 0 end) -- a task ends a moment after its answer
      me:delete()
      me:close()
    end
    assert.has_nothing_left(g)
  end)

  it("ends when the stream of its call is lost, or its session ends", function()
    -- a time limit of calls that is longer than the spec takes
    local g <close> = started { limits = { call = { time = "60s" } }, sessions = { replay = "off" } }
    local me = g:client("2025-11-25", able)
    me:open("tools/call", { name = "late", _meta = { progressToken = 1 } }):wait("notifications/progress"):reset()
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    assert.same({}, me:result "ping")
    me:delete()
    me:close()

    me = g:client("2025-11-25", able)
    me:open("tools/call", { name = "ask" }):wait "elicitation/create"
    me:delete()
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
