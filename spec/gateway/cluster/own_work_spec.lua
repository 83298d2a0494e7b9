-- What a gateway does of itself has a room of its own: clients whose tasks fill theirs keep it from nothing.
local cluster = require "spec.helpers.cluster"
local nodes = require "spec.helpers.nodes"
local processes = require "spec.helpers.processes"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const>, MODERN <const> = "2025-11-25", "2026-07-28"
local MOST <const> = 8
local BOUND <const> = 20 * wait.slower -- seconds

local scripts = {
  ["tools/slow.lua"] = 'return tool { "Slow.", task = "required", function() sleep(60) end }',
  ["tools/name.lua"] = [[return tool { "Asks, and works on.", task = "required", function(_, call)
    local said = call:ask { name = ask.elicit("Name?", { name = t.string }) }
    call:status("thanks, " .. said.name.name)
    sleep(60)
  end }]],
}

local function begin(g, me, name) return task_client.result(g, me, "tools/call", { name = name }).taskId end

local function renewals(c, g) return nodes.records(c.server)[g.number].renewals end

describe("a gateway whose places for tasks clients have taken", function()
  it("writes its record and those of tasks, and asks for numbers", function()
    local c <close>, one, two = cluster.start { scripts = scripts, constants = { tasks = MOST, node_turn_ms = 200 } }
    local me <close> = one:client(MODERN, { capabilities = task_client.CAN })
    local asks = begin(one, me, "name")
    for _ = 2, MOST do begin(one, me, "slow") end
    assert.matches("too many", task_client.post(one, me, "tools/call", { name = "slow" }).error.message)
    local status = one:status()
    assert.same({ MOST, 1 }, { status.gauges.jobs, status.counters.refused.jobs })
    local before = renewals(c, one)
    wait.for_fact("further renewals", BOUND, function() return renewals(c, one) > before + 2 end)
    task_client.wait(two, me, asks, "input_required")
    task_client.result(two, me, "tasks/update", { taskId = asks, inputResponses = { name = { action = "accept", content = { name = "Ann" } } } })
    wait.for_fact("the task's status at the other node", BOUND, function()
      return task_client.result(two, me, "tasks/get", { taskId = asks }).statusMessage == "thanks, Ann"
    end)
    local three = c:add { name = "n3" }
    local far <close> = move(three:client(STATEFUL), one)
    assert.equal("n3", text(far, "place"))
    status = one:status()
    assert.same({ MOST, 0 }, { status.gauges.jobs, status.counters.refused.own_jobs })
    assert.is_nil(status.cluster.away_ms)
    c:is_quiet()
  end)
end)

describe("a gateway whose own places are all taken", function()
  it("counts what it refuses, and does not take the server for gone", function()
    local c <close> = cluster.start { nodes = 1 }
    local g <close> = nodes.start(c.server.at, { node = "full", constants = { own_jobs = 0, node_turn_ms = 50 } })
    local status = g:wait_status(function(status) return status.counters.refused.own_jobs > 3 end)
    assert.same({ false, 0 }, { status.cluster.joined, status.gauges.own_jobs })
    assert.is_nil(status.cluster.away_ms)
    assert.equal(503, g:admin "/readyz".status)
    local me <close> = g:client(MODERN)
    assert.equal("complete", me:result("tools/list", {}).resultType)
    g:stop()
  end)
end)
