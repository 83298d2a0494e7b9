local host = require "spec.helpers.host"
local json = host.json

local scripts = {
  ["tools/extra.lua"] = 'return tool { "Extra.", enabled = false, function() return "here" end }',
  ["tools/plain.lua"] = 'return tool { "Plain.", function() return "plain" end }',
  ["tools/switch.lua"] = [[
return tool { "Switch.", input = { what = t.string, word = t.string, name = t.string }, function(args)
  local f = { on = enable, off = disable, is = enabled }
  return tostring(f[args.what](args.word, args.name))
end }]],
  ["prompts/hello.lua"] = 'return prompt { "Hello.", "hello" }',
  ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
  ["resources/notes.lua"] = 'return resource { "Notes.", uri = "notes://{id}", function(vars) return vars.id end }',
}

describe("a thing that is switched off", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  local function switch(what, word, name)
    return vm:tool("switch", { what = what, word = word, name = name }, { revision = "2026-07-28" }).content[1].text
  end

  local function topics()
    local list = {}
    for i, row in ipairs(vm.published) do list[i] = row.topic end
    return list
  end

  it("is as unknown, and capabilities do not vary by it", function()
    local before = json.encode(vm:call("server/discover", {}).capabilities)
    local off = select(2, vm:tool("extra", {}))
    assert.equal(-32602, off.code)
    assert.equal("unknown tool 'extra'", off.message)
    assert.is_nil(vm:list().extra)
    switch("off", "prompt", "hello")
    assert.equal("unknown prompt 'hello'", select(2, vm:call("prompts/get", { name = "hello" })).message)
    assert.same({}, vm:read("prompts/list").prompts)
    switch("off", "resource", "note")
    switch("off", "resource", "notes")
    for _, uri in ipairs { "note://one", "notes://two" } do
      local gone, never = select(2, vm:call("resources/read", { uri = uri })), select(2, vm:call("resources/read", { uri = "x://y" }))
      assert.equal(never.code, gone.code)
      assert.equal(never.message, gone.message)
    end
    assert.same({}, vm:read("resources/list").resources)
    assert.equal(before, json.encode(vm:call("server/discover", {}).capabilities))
  end)

  it("is there once it is switched on, in lists, pages and calls", function()
    vm:list()
    switch("on", "tool", "extra")
    assert.truthy(vm:list().extra)
    assert.equal("here", vm:tool("extra", {}).content[1].text)
    assert.equal("true", switch("is", "tool", "extra"))
    switch("off", "tool", "extra")
    assert.is_nil(vm:list().extra)
    assert.equal("false", switch("is", "tool", "extra"))
  end)

  it("causes one notification when its state changes, and none otherwise", function()
    switch("off", "tool", "extra")
    assert.same({}, topics())
    switch("on", "tool", "extra")
    switch("on", "tool", "extra")
    switch("off", "prompt", "hello")
    switch("off", "resource", "notes")
    assert.same({ "tools", "prompts", "resources" }, topics())
    local row = vm.published[1]
    assert.same({ jsonrpc = "2.0", method = "notifications/tools/list_changed" }, json.decode(row.plain))
    assert.same({ jsonrpc = "2.0", method = "notifications/tools/list_changed",
      params = { _meta = { ["io.modelcontextprotocol/subscriptionId"] = "a" } } }, json.decode(row.before .. '"a"' .. row.after))
  end)

  it("is off on every worker: a VM does what the store says, whichever message arrives first", function()
    vm.store.texts["switch:tool:plain"], vm.store.untils["switch:tool:plain"] = "off", math.huge
    assert.truthy(vm:list().plain)
    vm.moonpool.deliver("switched", "tool:plain")
    assert.is_nil(vm:list().plain)
    vm.store.texts["switch:tool:plain"] = "on"
    vm.moonpool.deliver("switched", "tool:plain")
    assert.truthy(vm:list().plain)
    vm.moonpool.deliver("switched", "tool:nobody")
    assert.same({}, vm.published)
  end)

  it("must exist, and have its kind named", function()
    for _, case in ipairs {
      { "tool", "extr", "there is no tool 'extr'" }, { "tools", "extra", 'enable takes "tool", "prompt" or "resource", and a name' },
    } do
      assert.equal("internal error 7f3a", switch("on", case[1], case[2]))
      assert.truthy(vm.logs[#vm.logs].fields.why:find(case[3], 1, true))
      assert.truthy(vm.logs[#vm.logs].fields.hint:find("did you mean", 1, true))
    end
  end)

  it("cannot be switched while scripts load, when the set of things is not known yet", function()
    vm = host.start { ["tools/a.lua"] = 'disable("tool", "b")\nreturn tool { "A.", function() end }' }
    assert.truthy(vm.errors[1]:find("scripts/tools/a.lua:1: disable can be called only by handlers", 1, true))
  end)
end)
