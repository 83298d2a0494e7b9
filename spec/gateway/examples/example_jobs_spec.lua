-- examples/jobs: the commands of its README, and the subscribers that its job notifies.
local example = require "spec.helpers.example"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local files = { "README.md", "moonpool.yaml", "scripts/jobs/report.lua", "scripts/tools/visit.lua", "scripts/resources/report.lua" }

describe("the example jobs", function()
  it("does what its README says", function()
    local dir, commands, ports = example.copy("jobs", files)
    assert.equal(3, #commands)
    local first, second = example.read("examples/jobs/README.md"):match "first answers `…(.-)…`.-second later, `…\"(.-)\"…`"
    do
      local served <close> = example.run_beside(commands[1], dir)
      example.await_port(ports["7300"])
      local function typed(command) return (select(2, gateway.run_program("/bin/sh", { "-c", command }, { cwd = dir }))) end
      local out = typed(commands[2])
      assert.truthy(out:find(first, 1, true), out)
      wait.for_fact("the report to have it", 10, function() return typed(commands[3]):find(second, 1, true) end)
      assert.is_nil(served.code)
    end
    gateway.run_program("/bin/rm", { "-r", dir })
  end)

  it("notifies subscribers of the report when the report changes", function()
    local g <close> = gateway.start { scripts_path = "examples/jobs/scripts" }
    local me = g:client "2026-07-28"
    local stream = me:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "visits://report" } } })
    stream:wait "notifications/subscriptions/acknowledged"
    for _ = 1, 2 do me:result("tools/call", { name = "visit", arguments = { page = "home" } }) end
    wait.for_fact("the report", 10, function()
      stream:wait_event "notifications/resources/updated"
      return me:result("resources/read", { uri = "visits://report" }).contents[1].text == "home: 2"
    end)
    stream:close()
    me:close()
    assert.has_nothing_left(g)
  end)
end)
