-- Sessions that subscribe to single resources are notified of these only. Rules R-3, S-25.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
  ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{id}", function(vars) return vars.id end }',
  ["tools/touch.lua"] = 'return tool { "Touch.", input = { uri = t.string }, function(args) resource_updated(args.uri) return "told" end }',
}

-- A session with a stream for messages that belong to no request.
local function session(g, revision)
  local c = g:client(revision)
  c.own = c.endpoint and c.stream or c:get_stream().connection
  c.own:read_head()
  return c
end

local function updates(c)
  local list = {}
  for _, message in ipairs(c.own:messages()) do
    if message.method == "notifications/resources/updated" then list[#list + 1] = message.params.uri end
  end
  return list
end

local function touch(c, uri) assert.equal("told", c:call("tools/call", { name = "touch", arguments = { uri = uri } }).result.content[1].text) end

local function leave(...)
  for _, c in ipairs { ... } do
    if c.delete then c:delete() end
    c:close()
  end
end

for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" } do
  describe("a session of " .. revision, function()
    it("is notified once of each update of its resources, until it unsubscribes", function()
      local g <close> = gateway.start { scripts = scripts }
      local c, other = session(g, revision), session(g, revision)
      assert.same({ subscribe = true, listChanged = true }, c.server.capabilities.resources)
      for _ = 1, 2 do assert.same({}, c:call("resources/subscribe", { uri = "notes://7" }).result) end
      touch(other, "notes://7")
      c.own:wait_event "notifications/resources/updated"
      touch(other, "notes://8")
      assert.same({}, c:call("resources/subscribe", { uri = "note://one" }).result)
      touch(c, "note://one")
      c.own:wait_event "notifications/resources/updated"
      assert.same({}, c:call("resources/unsubscribe", { uri = "notes://7" }).result)
      touch(c, "notes://7")
      touch(c, "note://one")
      c.own:wait_event "notifications/resources/updated"
      assert.same({ "notes://7", "note://one", "note://one" }, updates(c))
      assert.same({}, updates(other))
      leave(c, other)
      assert.has_nothing_left(g)
    end)
  end)
end

describe("an update", function()
  it("arrives once, however many streams the session has open (B-51)", function()
    local g <close> = gateway.start { scripts = {
      ["resources/note.lua"] = scripts["resources/note.lua"], ["tools/touch.lua"] = scripts["tools/touch.lua"],
      ["tools/slow.lua"] = 'return tool { "Slow.", function(_, call) call:progress(1) sleep(60) end }',
    } }
    local c = session(g, "2025-11-25")
    c:call("resources/subscribe", { uri = "note://one" })
    local streams = {}
    for i = 1, 3 do streams[i] = c:open("tools/call", { name = "slow", _meta = { progressToken = i } }):wait "notifications/progress" end
    touch(c, "note://one")
    c.own:wait_event "notifications/resources/updated"
    wait.quietly(0.1)
    local count = #updates(c)
    for _, stream in ipairs(streams) do
      for _, message in ipairs(stream:messages()) do
        if message.method == "notifications/resources/updated" then count = count + 1 end
      end
    end
    assert.equal(1, count)
    leave(c)
    assert.has_nothing_left(g)
  end)
end)

describe("subscribing", function()
  it("to an unknown URI is an error, and more than the cap is refused", function()
    local g <close> = gateway.start { scripts = scripts, constants = { subscriptions = 4 } }
    local c = session(g, "2025-11-25")
    local answer = c:call("resources/subscribe", { uri = "nope://1" })
    assert.same({ code = -32002, message = "resource not found", data = { uri = "nope://1" } }, answer.error)
    for i = 1, 2 do assert.same({}, c:call("resources/subscribe", { uri = "notes://" .. i }).result) end -- two lists count, too
    assert.equal(-32603, c:call("resources/subscribe", { uri = "notes://3" }).error.code)
    c:call("resources/unsubscribe", { uri = "notes://1" })
    assert.same({}, c:call("resources/subscribe", { uri = "notes://3" }).result)
    leave(c)
    assert.has_nothing_left(g)
  end)
end)
