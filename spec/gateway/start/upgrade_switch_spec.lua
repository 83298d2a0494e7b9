-- A switch of an operator while an older process stands still: the operator is told, and that process follows once it
-- goes on.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

describe("a switch while an older process stands still", function()
  it("is told to the operator with that process, which follows and tells its clients when it goes on", function()
    local g <close> = upgrading.start { workers = 2, scripts = { ["tools/one.lua"] = 'return tool { "One.", function() return "one" end }' } }
    local c <close> = g:client "2025-06-18"
    local stream = c:get_stream()
    local old = g.pid
    g:must_upgrade()
    uv.kill(old, "sigstop")
    local _ <close> = setmetatable({}, { __close = function() uv.kill(old, "sigcont") end })
    local code, out, err = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, "off", "tool", "one" }, { seconds = 30 })
    assert.equal(1, code)
    assert.matches("tool one is off", out, 1, true)
    assert.matches(("an older process does not answer (pid %d)"):format(old), err, 1, true)
    uv.kill(old, "sigcont")
    stream:wait_event("notifications/tools/list_changed", 20)
    c.kept:close()
    c.kept = nil
    wait.for_fact("the switch in the older process", 20, function() return c:call("tools/call", { name = "one", arguments = {} }).error end)
    stream:close()
  end)
end)
