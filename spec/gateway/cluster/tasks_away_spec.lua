-- Running tasks go on whatever becomes of the server: away, emptied, or with another time.
local cluster = require "spec.helpers.cluster"
local nodes = require "spec.helpers.nodes"
local shared_tasks = require "spec.helpers.shared_tasks"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local it = cluster.it(it, pending)
local start, modern, session, begin, begin_in = shared_tasks.start, shared_tasks.modern, shared_tasks.session, shared_tasks.begin,
  shared_tasks.begin_in
local failures, settle = shared_tasks.failures, shared_tasks.settle
local BOUND <const>, STALE_S <const> = shared_tasks.BOUND, shared_tasks.STALE_S

describe("a running task", function()
  it("goes on while the server is away, is cancelled and answered through any node, and is written later", function()
    local c <close>, one, two = start()
    local me <close> = modern(one)
    local ann <close> = session(one)
    local far <close> = session(two)
    local slow, asks = begin(one, me, "slow"), begin(one, me, "name")
    local there = begin_in(ann, "step")
    task_client.wait(two, me, asks, "input_required")
    c.server:stop()
    wait.for_fact("the nodes to miss the server", BOUND, function()
      return nodes.known(one).away_ms and nodes.known(two).away_ms
    end)
    task_client.result(two, me, "tasks/update", { taskId = asks, inputResponses = { name = { action = "accept", content = { name = "Ann" } } } })
    assert.equal("Ann", task_client.wait(two, me, asks, "completed").result.content[1].text)
    task_client.result(two, me, "tasks/cancel", { taskId = slow })
    task_client.wait(two, me, slow, "cancelled")
    local answer = far:call("tasks/get", { taskId = there })
    assert.equal(1, answer.error.data.retryAfter)
    ann:result("tools/call", { name = "go", arguments = {} })
    wait.quietly(STALE_S + 1)
    c.server:begin()                                               -- it has forgotten all
    wait.for_fact("the task", BOUND, function()
      local task = far:call("tasks/get", { taskId = there }).result
      return task and task.statusMessage == "going on" and task
    end)
    assert.equal("working", far:result("tasks/get", { taskId = there }).status)
    far:result("tasks/cancel", { taskId = there })
    assert.equal(0, failures(one, two))
    c:is_quiet()
  end)

  it("outlives a server that is emptied or whose clock is set on by an hour", function()
    local step = nodes.stepped(0)
    local c <close>, one, two = start { server = { env = step } }
    settle(c.all)
    local ann <close> = session(one)
    local far <close> = session(two)
    local id = begin_in(ann, "slow")
    for _, harm in ipairs { function() c.server:cli "FLUSHALL" end, function() nodes.stepped(3600, step.CLOCK_STEP) end } do
      harm()
      wait.for_fact("the task to be there again", BOUND, function()
        local task = far:call("tasks/get", { taskId = id }).result
        assert.equal("working", task and task.status or "working")
        return task
      end)
    end
    assert.equal("working", ann:result("tasks/get", { taskId = id }).status)
    assert.equal("cancelled", far:result("tasks/cancel", { taskId = id }).status)
    assert.equal(0, failures(one, two))
    c:is_quiet()
  end)
end)
