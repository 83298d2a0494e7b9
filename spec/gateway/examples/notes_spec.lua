-- examples/notes: the commands of its README, and the behaviour of its tools.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"

local files = {
  "README.md", "moonpool.yaml", "scripts/lib/notes.lua", "scripts/tools/note/tools.lua", "scripts/resources/notes.lua", "scripts/jobs/sweep.lua",
}

describe("the example notes", function()
  it("does what its README says", function()
    local dir, commands, ports = example.copy("notes", files)
    assert.equal(2, #commands)
    do
      local served <close> = example.run_beside(commands[1], dir)
      example.await_port(ports["7300"])
      local code, out = gateway.run_program("/bin/sh", { "-c", commands[2] }, { cwd = dir })
      assert.equal(0, code)
      assert.truthy(out:find(example.read(dir .. "/examples/notes/README.md"):match "It answers `…(.-)…`", 1, true), out)
      assert.is_nil(served.code)
    end
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("keeps, finds and deletes notes, and notifies subscribers", function()
    local scripts = {}
    for _, name in ipairs(files) do
      local path = name:match "^scripts/(.+)$"
      if path then scripts[path] = example.read("examples/notes/" .. name) end
    end
    local g <close> = gateway.start { scripts = scripts, config = { scripts = { allow = { write = { "notes.db" } } } } }
    local me = g:client "2026-07-28"
    local function text(name, arguments) return me:result("tools/call", { name = name, arguments = arguments }).content[1].text end
    local stream = me:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "notes://all" } } })
    stream:wait "notifications/subscriptions/acknowledged"
    assert.equal("kept as 1", text("note_add", { text = "Buy milk" }))
    stream:wait_event "notifications/resources/updated"
    assert.equal("kept as 2", text("note_add", { text = "It's a note; drop table notes" }))
    assert.matches("Buy milk", text("note_find", { word = "MILK" }))
    assert.equal("there is no note 7: none is forgotten", text("note_forget", { ids = { 1, 7 } }))
    assert.matches("Buy milk", me:result("resources/read", { uri = "notes://all" }).contents[1].text)
    assert.equal("1 forgotten", text("note_forget", { ids = { 1 } }))
    local all = me:result("resources/read", { uri = "notes://all" }).contents[1].text
    assert.truthy(all:find "drop table" and not all:find "milk")
    stream:close()
    me:close()
  end)
end)
