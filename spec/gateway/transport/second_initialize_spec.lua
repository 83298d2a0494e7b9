-- B-14: the result of a session's first `initialize` stays.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wire = require "spec.helpers.wire"

local scripts = { ["tools/who.lua"] = [[return tool { "Who calls.", function(_, call)
  return call.revision .. " " .. call.client.name .. " " .. tostring(call.capabilities.sampling ~= nil)
end }]] }

local first = { capabilities = { sampling = {} }, client_info = { name = "first", version = "1" } }
local second = { capabilities = {}, clientInfo = { name = "second", version = "2" } }

local function ask_again(revision)
  return { protocolVersion = revision, capabilities = second.capabilities, clientInfo = second.clientInfo }
end

describe("a second `initialize` in a live session", function()
  it("is refused over Streamable HTTP, and the first stays valid", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client("2025-06-18", first)
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25", "nonsense" } do
      local answer, response = me:call("initialize", ask_again(revision))
      assert.equal(400, response.status)
      assert.equal(-32600, answer.error.code)
      assert.equal(me.ids, answer.id)
      assert.is_nil(response.headers["mcp-session-id"])
    end
    assert.equal("2025-06-18 first true", me:result("tools/call", { name = "who" }).content[1].text)
    assert.equal(400, wire.post(g, wire.message(9, "ping"), { ["Mcp-Session-Id"] = me.session, ["MCP-Protocol-Version"] = "2025-03-26" }).status)
    assert.equal(1, g:status().gauges.sessions.http)
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is refused over HTTP+SSE, and the first stays valid", function()
    local g <close> = gateway.start { scripts = scripts }
    local me = g:client("2024-11-05", first)
    local answer, response = me:call("initialize", ask_again "2025-11-25")
    assert.equal(202, response.status)
    assert.equal(-32600, answer.error.code)
    assert.equal("2024-11-05 first true", me:result("tools/call", { name = "who" }).content[1].text)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("two `initialize` that race on one HTTP+SSE session", function()
  it("give one result and one refusal", function()
    local g <close> = gateway.start { scripts = scripts, workers = 4 }
    for round = 1, 200 do
      local me = g:client("2024-11-05", { initialize = false })
      local posts = {}
      for i, revision in ipairs { "2024-11-05", "2025-06-18" } do
        posts[i] = client.connect(g)
        posts[i]:send { method = "POST", path = me.endpoint, body = wire.initialize_message(revision, i) }
      end
      local agreed, refused = nil, 0
      for i = 1, 2 do
        assert.equal(202, posts[i]:read_response().status)
        posts[i]:close()
        local answer = me.stream:wait_event(i).json
        if answer.result then
          assert.is_nil(agreed, "round " .. round)
          agreed = answer.result.protocolVersion
        else
          assert.equal(-32600, answer.error.code)
          refused = refused + 1
        end
      end
      assert.equal(1, refused, "round " .. round)
      assert.equal(agreed .. " spec false", me:result("tools/call", { name = "who" }).content[1].text)
      me:close()
    end
    assert.has_nothing_left(g)
  end)
end)
