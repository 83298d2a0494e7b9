-- Messages about tasks that another process of the gateway runs: none is lost while that process lives, however long it
-- stands still.
local uv = require "luv"
local credentials = require "spec.helpers.credentials"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local STATEFUL <const> = "2025-11-25"

local scripts = {
  ["auth/tokens.lua"] = credentials.script,
  ["tools/slow.lua"] = 'return tool { "Slow.", task = "optional", timeout = 300, function() sleep(300) end }',
}

describe("a message to a task of a process that stands still", function()
  it("is carried out when that process goes on, also after the time in which it was to be taken", function()
    local g <close> = upgrading.start { scripts = scripts, workers = 1 }
    local function open() return g:client(STATEFUL, { token = "ann-1" }) end
    local first <close> = open()
    local id = first:result("tools/call", { name = "slow", arguments = {}, task = { ttl = 300000 } }).task.taskId
    local old = g.pid
    g:must_upgrade()
    local second <close> = open()
    uv.kill(old, "sigstop")
    local _ <close> = setmetatable({}, { __close = function() uv.kill(old, "sigcont") end })
    local stopped = uv.hrtime()
    local answer = second:call("tasks/cancel", { taskId = id })
    assert.matches("has not ended yet", answer.error.message, 1, true)
    wait.for_fact("the time of the message", 60, function() return uv.hrtime() - stopped > 13e9 end)
    uv.kill(old, "sigcont")
    wait.for_fact("the task to be cancelled", 30, function() return second:result("tasks/get", { taskId = id }).status == "cancelled" end)
    assert.is_nil(g:log():find("not delivered", 1, true))
    g:wait_status(function(status) return status.gauges.task_message_bytes == 0 end)
  end)
end)
