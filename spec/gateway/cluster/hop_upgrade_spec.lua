-- A node that is upgraded, and tasks: what other nodes send reaches the process whose number an id has.
local cluster = require "spec.helpers.cluster"
local processes = require "spec.helpers.processes"
local task_client = require "spec.helpers.task_client"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"
local BOUND <const> = 20 * wait.slower -- seconds

local scripts = {
  ["tools/slow.lua"] = [[return tool { "Slow.", task = "optional", function(_, call)
    call:status "at work"
    sleep(60)
  end }]],
  ["tools/name.lua"] = [[return tool { "Asks, as a task.", task = "optional", function(_, call)
    local said, whys = call:ask { name = ask.elicit("Name?", { name = t.string }) }
    return try(said.name, whys.name).name
  end }]],
}

describe("a node that was upgraded", function()
  it("is reached at the same address, also by requests for sessions of its older process", function()
    local c <close>, one, two = cluster.start { tls = true, start = upgrading.start_quick }
    local old <close> = one:client(STATEFUL)
    assert.equal("n1", text(move(old, two), "place"))
    one:must_upgrade()
    local new <close> = one:client(STATEFUL)
    for _ = 1, 3 do
      assert.equal("n1", text(old, "place")) -- by the node two, to the older process
      assert.equal("n1", text(move(new, two), "place"))
    end
    assert.equal(0, cluster.forwards(two, one, "over"))
    assert.equal(204, old:delete().status)
    assert.equal(204, new:delete().status)
    c:is_quiet()
  end)
end)

describe("a task of another node", function()
  it("is read, answered and cancelled by way of any node", function()
    local c <close>, one, two = cluster.start { scripts = scripts }
    local me <close> = one:client("2026-07-28", { capabilities = task_client.CAN })
    local asks = task_client.result(one, me, "tools/call", { name = "name" }).taskId
    local slow = task_client.result(one, me, "tools/call", { name = "slow" }).taskId
    task_client.wait(two, me, asks, "input_required")
    task_client.result(two, me, "tasks/update", { taskId = asks, inputResponses = { name = { action = "accept", content = { name = "Ann" } } } })
    assert.equal("Ann", task_client.wait(two, me, asks, "completed").result.content[1].text)
    task_client.result(two, me, "tasks/cancel", { taskId = slow })
    task_client.wait(one, me, slow, "cancelled")
    one:wait_status(function(status) return status.gauges.jobs == 0 end, BOUND)
    c:is_quiet()
  end)
end)
