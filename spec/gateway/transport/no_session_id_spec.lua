-- A message that names no session belongs to none, also if there is only one session (B-12).
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local touched = { ["tools/touch.lua"] = [[return tool { "Leaves a trace.", function() log.info "touched" return "x" end }]] }
local call = wire.message(66, "tools/call", { name = "touch", arguments = {} })

-- All messages that came on the stream before the answer of a later message.
local function answers(me, stream)
  assert.same({}, me:result "ping")
  local ids = {}
  for _, message in ipairs(stream:messages()) do
    ids[#ids + 1] = message.id
  end
  return ids
end

describe("beside the only HTTP+SSE client", function()
  it("a POST without its id, with an empty one, or with two is 400, and the client's stream carries nothing", function()
    local g <close> = gateway.start { scripts = touched }
    local victim = g:client "2024-11-05"
    local id = victim.endpoint:match "session_id=(%x+)"
    local before = answers(victim, victim.stream)
    for _, query in ipairs {
      "", "?", "?session_id=", "?session_id", "?session=" .. id, "?Session_Id=" .. id, "?session_id=" .. id .. "&session_id=" .. id,
      "?session_id=&session_id=" .. id, "?session_id=" .. id .. "&session_id=", "?x=session_id=" .. id, "?sessionId=" .. id,
    } do
      local response = wire.post(g, call, nil, "/messages" .. query)
      assert.equal(400, response.status, query)
      assert.equal(-32600, response:json().error.code)
    end
    assert.equal(400, wire.post(g, call, { ["Mcp-Session-Id"] = id }, "/messages").status)
    assert.equal(400, wire.post(g, call).status)
    assert.equal(#before + 1, #answers(victim, victim.stream))
    assert.is_nil(g:log():find("touched", 1, true))
    victim:close()
    assert.has_nothing_left(g)
  end)

  it("a query with more fields than the id finds the session", function()
    local g <close> = gateway.start { scripts = touched }
    local me = g:client "2024-11-05"
    assert.equal(202, wire.post(g, wire.message(70, "ping"), nil, me.endpoint .. "&x=1&y").status)
    assert.same({}, me.stream:wait_event(70).json.result)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("beside the only Streamable HTTP client", function()
  it("a POST without its id, with an empty one, or with two is 400, and the client's stream carries nothing", function()
    local g <close> = gateway.start { scripts = touched }
    local victim = g:client "2025-11-25"
    local stream = victim:get_stream()
    assert.equal(200, stream:head().status)
    local session = victim.session
    for _, headers in ipairs {
      {}, { ["Mcp-Session-Id"] = "" }, { { "Mcp-Session-Id", session }, { "Mcp-Session-Id", session } },
      { { "Mcp-Session-Id", "" }, { "Mcp-Session-Id", session } }, { { "Mcp-Session-Id", session }, { "mcp-session-id", "x" } },
    } do
      assert.equal(400, wire.post(g, call, headers).status)
    end
    assert.equal(400, wire.post(g, call, nil, "/mcp?session_id=" .. session).status)
    assert.same({}, victim:result "ping")
    assert.same({}, stream:messages())
    assert.is_nil(g:log():find("touched", 1, true))
    victim:delete()
    victim:close()
    assert.has_nothing_left(g)
  end)
end)
