-- B-08: a session is usable already between the answer to `initialize` and `notifications/initialized`.
local gateway = require "spec.helpers.gateway"
local wire = require "spec.helpers.wire"

local chatty = { ["tools/chatty.lua"] = [[return tool { "Says two things.", function(_, call)
  call:log("info", "low")
  call:log("error", "high")
  return "done"
end }]] }

-- A client whose `initialize` is answered and that never sends `notifications/initialized`.
local function half_way(g, revision)
  local me = g:client(revision, { initialize = false })
  local answer, response = me:call("initialize", { protocolVersion = revision, capabilities = {}, clientInfo = { name = "spec", version = "1" } })
  assert.equal(revision, answer.result.protocolVersion)
  me.session = response.headers["mcp-session-id"]
  return me
end

local function leave(me)
  if me.delete then
    me:delete()
  end
  me:close()
end

for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" } do
  describe("a " .. revision .. " client that has not sent notifications/initialized yet", function()
    it("gets its ping answered", function()
      local g <close> = gateway.start {}
      local me = half_way(g, revision)
      assert.same({}, me:result "ping")
      leave(me)
      assert.has_nothing_left(g)
    end)

    it("can set the log level, which applies from then on", function()
      local g <close> = gateway.start { scripts = chatty }
      local me = half_way(g, revision)
      assert.same({}, me:result("logging/setLevel", { level = "error" }))
      local stream = me:open("tools/call", { name = "chatty" })
      assert.equal("done", stream:answer().result.content[1].text)
      local said = {}
      for _, message in ipairs(stream:messages()) do
        if message.method == "notifications/message" then
          said[#said + 1] = message.params.level .. ": " .. message.params.data
        end
      end
      assert.same({ "error: high" }, said)
      leave(me)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("an HTTP+SSE client that has not even sent `initialize`", function()
  it("gets its ping answered, and nothing else", function()
    local g <close> = gateway.start {}
    local me = g:client("2024-11-05", { initialize = false })
    assert.same({}, me:result "ping")
    for _, method in ipairs { "logging/setLevel", "tools/list", "tools/call", "no/such" } do
      local answer, response = me:call(method, { level = "error", name = "x" })
      assert.equal(202, response.status)
      assert.equal(-32600, answer.error.code, method)
      assert.same({ reason = "not_initialized" }, answer.error.data)
    end
    assert.truthy(me:result("initialize", wire.initialize_message("2024-11-05").params).serverInfo)
    assert.same({}, me:result("tools/list").tools)
    me:close()
    assert.has_nothing_left(g)
  end)
end)
