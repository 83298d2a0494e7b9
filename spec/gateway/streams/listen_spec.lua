-- subscriptions/listen: a subscriber gets only the notifications it asked for, tagged with its id, and a message at its
-- end. Rules B-1 to B-7, B-52.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local key = "io.modelcontextprotocol/subscriptionId"

local scripts = {
  ["tools/extra.lua"] = 'return tool { "Extra.", enabled = false, function() return "here" end }',
  ["tools/all.lua"] = [[
return tool { "Change everything.", function()
  local f = enabled("tool", "extra") and disable or enable
  f("tool", "extra") f("prompt", "hello") f("resource", "other")
  resource_updated "note://one"
  return "changed"
end }]],
  ["prompts/hello.lua"] = 'return prompt { "Hello.", enabled = false, "hello" }',
  ["resources/other.lua"] = 'return resource { "Other.", uri = "other://one", enabled = false, "text" }',
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
}

local function methods(stream)
  local list = {}
  for i, message in ipairs(stream:messages()) do list[i] = message.method or "result" end
  return list
end

local function change(c) assert.equal("changed", c:call("tools/call", { name = "all" }).result.content[1].text) end

describe("a client that listens", function()
  it("first gets the list of its subscriptions, and is notified of those alone, each with its request's id (B-52)", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2026-07-28"
    local tools = c:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    local note = c:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "note://one", "gone://" }, promptsListChanged = false } })
    local both = c:open("subscriptions/listen", { notifications = { toolsListChanged = true, resourceSubscriptions = { "note://one" } } })
    local none = c:open("subscriptions/listen", { notifications = {} })
    for _, stream in ipairs { tools, note, both, none } do stream:wait "notifications/subscriptions/acknowledged" end
    assert.same({ toolsListChanged = true }, tools.last.json.params.notifications)
    assert.same({ resourceSubscriptions = { "note://one" } }, note.last.json.params.notifications)
    assert.same({}, none.last.json.params.notifications)
    for _ = 1, 2 do       -- one after the other: two at once may be merged into one notification
      change(c)
      for _, stream in ipairs { tools, both } do stream:wait_event "notifications/tools/list_changed" end
      for _, stream in ipairs { note, both } do stream:wait_event "notifications/resources/updated" end
    end
    wait.quietly(0.1)
    local ack, list, updated = "notifications/subscriptions/acknowledged", "notifications/tools/list_changed", "notifications/resources/updated"
    assert.same({ ack, list, list }, methods(tools))
    assert.same({ ack, updated, updated }, methods(note))
    assert.equal(5, #methods(both))
    assert.same({ ack }, methods(none))
    for _, stream in ipairs { tools, note, both, none } do
      for _, message in ipairs(stream:messages()) do assert.equal(stream.id, message.params._meta[key]) end
    end
    assert.equal("note://one", note:messages()[2].params.uri)
    c:close()
    assert.has_nothing_left(g)
  end)

  it("keeps its id's type", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client "2026-07-28"
    local message = c:message("subscriptions/listen", { notifications = { toolsListChanged = true } })
    for _, id in ipairs { "7", "ü\n\"", "" } do
      message.id = id
      local connection <close> = g:connect()
      connection:send { method = "POST", path = "/mcp", headers = c:headers(message), body = message }
      assert.equal(id, connection:wait_event("notifications/subscriptions/acknowledged").json.params._meta[key])
      change(c)
      assert.equal(id, connection:wait_event("notifications/tools/list_changed").json.params._meta[key])
    end
    c:close()
    assert.has_nothing_left(g)
  end)

  it("gets its result when the gateway stops, which does not wait for it (B-6)", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { drain = "10m" } } }
    local c <close> = g:client "2026-07-28"
    local stream = c:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    stream:wait "notifications/subscriptions/acknowledged"
    g:signal "sigterm"
    local result = stream:answer().result
    assert.equal("complete", result.resultType)
    assert.equal(stream.id, result._meta[key])
    stream.connection:wait_end()
    assert.equal(0, g:wait_exit())
  end)

  it("is refused when its parameters are invalid, and when there are too many subscribers", function()
    local g <close> = gateway.start { scripts = scripts, constants = { listeners = 1 } }
    local c <close> = g:client "2026-07-28"
    for _, filter in ipairs { "tools", { toolsListChanged = 1 }, { resourceSubscriptions = { 1 } } } do
      local answer, response = c:call("subscriptions/listen", { notifications = filter })
      assert.equal(-32602, answer.error.code)
      assert.equal(400, response.status)
    end
    local answer, response = c:call("subscriptions/listen", { notifications = { taskIds = { "x" } } })
    assert.equal(-32021, answer.error.code)
    assert.equal(400, response.status)
    local first = c:open("subscriptions/listen", { notifications = {} }):wait "notifications/subscriptions/acknowledged"
    local second = c:open("subscriptions/listen", { notifications = {} })
    assert.equal(-32603, second:answer().error.code)
    first:hang_up()
    g:wait_status(function(status) return status.gauges.listeners == 0 end)
    c:close()
    assert.has_nothing_left(g)
  end)
end)
