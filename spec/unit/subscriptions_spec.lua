local host = require "spec.helpers.host"
local json = host.json

local key = "io.modelcontextprotocol/subscriptionId"
local tasks = { extensions = { ["io.modelcontextprotocol/tasks"] = { x = 1 } } }

local scripts = {
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
  ["resources/off.lua"] = 'return resource { "Off.", uri = "off://one", enabled = false, "text" }',
  ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{id}", function(vars) return vars.id end }',
  ["tools/touch.lua"] = 'return tool { "Touch.", input = { uri = t.string }, function(args) resource_updated(args.uri) return "told" end }',
}

local legacy = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" }

describe("resources/subscribe", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  it("follows a resource, or one that a template would give, in the revisions with sessions", function()
    for _, revision in ipairs(legacy) do
      for _, uri in ipairs { "note://one", "notes://seven" } do
        local fields = { revision = revision, has_session = true }
        assert.same({}, vm:call("resources/subscribe", { uri = uri }, fields))
        assert.is_true(vm.followed["resource:" .. uri])
        assert.same({}, vm:call("resources/unsubscribe", { uri = uri }, fields))
        assert.is_nil(vm.followed["resource:" .. uri])
      end
    end
    assert.equal(-32601, select(2, vm:call("resources/subscribe", { uri = "note://one" })).code)
  end)

  it("finds no resource that is not there, or switched off", function()
    local session = { revision = "2025-11-25", has_session = true }
    for _, uri in ipairs { "note://two", "off://one" } do
      local _, err = vm:call("resources/subscribe", { uri = uri }, session)
      assert.same({ code = -32002, message = "resource not found", data = { uri = uri } }, err)
      assert.same({}, vm:call("resources/unsubscribe", { uri = uri }, session))
    end
    for _, method in ipairs { "resources/subscribe", "resources/unsubscribe" } do
      assert.equal(-32602, select(2, vm:call(method, {}, { revision = "2025-11-25" })).code)
    end
    assert.same({}, vm.followed)
  end)

  it("says when the session follows too much", function()
    local _, err = vm:call("resources/subscribe", { uri = "note://one" }, { revision = "2025-11-25", has_session = true, no_room = true })
    assert.equal(-32603, err.code)
  end)
end)

describe("resource_updated", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  it("notifies the subscribers of that URI", function()
    vm:tool("touch", { uri = "notes://1" })
    local row = vm.published[1]
    assert.equal("resource:notes://1", row.topic)
    assert.same({ jsonrpc = "2.0", method = "notifications/resources/updated", params = { uri = "notes://1" } }, json.decode(row.plain))
    assert.same({ uri = "notes://1", _meta = { [key] = 7 } }, json.decode(row.before .. "7" .. row.after).params)
  end)

  it("needs a resource, and is quiet about one that is off", function()
    assert.is_true(vm:tool("touch", { uri = "nope://1" }).isError)
    assert.equal("told", vm:tool("touch", { uri = "off://one" }).content[1].text)
    assert.same({}, vm.published)
  end)
end)

describe("initialize", function()
  after_each(host.stop)

  it("makes the session follow the lists that there are", function()
    local vm = host.start { ["prompts/p.lua"] = 'return prompt { "P.", "p" }' }
    vm:call("initialize", { protocolVersion = "2025-11-25" }, { revision = "none", initialized = false, has_session = true })
    assert.same({ tools = true, prompts = true }, vm.followed)
  end)
end)

describe("subscriptions/listen", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  local function listen(filter, fields)
    fields = fields or {}
    fields.id = fields.id or '"sub"'
    return vm:call("subscriptions/listen", { notifications = filter }, fields)
  end

  it("acknowledges what it will send, tagged, and ends with a result", function()
    local result = listen({ toolsListChanged = true, promptsListChanged = true, resourcesListChanged = false,
      resourceSubscriptions = { "note://one", "nope://", "off://one", "notes://2", "note://one" }, somethingElse = true })
    local ack = vm.last.sent[1]
    assert.equal("notifications/subscriptions/acknowledged", ack.method)
    assert.same({ toolsListChanged = true, resourceSubscriptions = { "note://one", "notes://2" } }, json.decode(json.encode(ack.params.notifications)))
    assert.equal('"sub"', json.encode(ack.params._meta[key]))
    assert.same({ "tools", "resource:note://one", "resource:notes://2" }, vm.listening)
    assert.equal("complete", result.resultType)
    assert.equal("sub", json.decode(json.encode(result))._meta[key])
    assert.equal("moonpool", json.decode(json.encode(result))._meta["io.modelcontextprotocol/serverInfo"].name)
  end)

  it("acknowledges nothing too", function()
    listen({ promptsListChanged = true })
    assert.equal("{}", json.encode(vm.last.sent[1].params.notifications))
    assert.same({}, vm.listening)
  end)

  it("refuses what is malformed", function()
    local many = {}
    for i = 1, 1025 do many[i] = "note://one" end
    for what, filter in pairs {
      nothing = false, text = "tools", list = json.array { "tools" }, kind = { toolsListChanged = 1 }, uris = { resourceSubscriptions = "x" },
      ["uri"] = { resourceSubscriptions = { 1 } }, ["named uris"] = { resourceSubscriptions = { a = "b" } }, many = { resourceSubscriptions = many },
    } do
      assert.equal(-32602, select(2, listen(filter or nil)).code, what)
    end
    assert.is_nil(vm.listening)
  end)

  it("takes tasks from clients that declare them, and then only their own", function()
    local _, err = listen({ taskIds = { ("0"):rep(36) } })
    assert.equal(-32021, err.code)
    assert.equal('{"extensions":{"io.modelcontextprotocol/tasks":{}}}', json.encode(err.data.requiredCapabilities))
    listen({ taskIds = { ("0"):rep(36) } }, { capabilities = tasks })
    assert.equal("{}", json.encode(vm.last.sent[1].params.notifications))
  end)

  it("says when too many listen", function()
    assert.equal(-32603, select(2, listen({}, { no_room = true })).code)
  end)
end)
