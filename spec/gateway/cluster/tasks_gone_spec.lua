-- A task whose node is gone has failed, once; and a process that was taken for gone ends its tasks when it goes on.
local cluster = require "spec.helpers.cluster"
local shared_tasks = require "spec.helpers.shared_tasks"
local task_client = require "spec.helpers.task_client"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local it = cluster.it(it, pending)
local start, modern, session, begin, begin_in, see = shared_tasks.start, shared_tasks.modern, shared_tasks.session, shared_tasks.begin,
  shared_tasks.begin_in, shared_tasks.see
local failures, settle = shared_tasks.failures, shared_tasks.settle
local BOUND <const>, GONE <const> = shared_tasks.BOUND, shared_tasks.GONE

describe("a task of another node", function()
  it("has failed, once, when its node is gone", function()
    local c <close>, one, two, three = start { nodes = 3 }
    settle(c.all)
    local me <close> = modern(two)
    local far <close> = session(two)
    local farther <close> = session(three)
    local here, there = begin(one, me, "slow"), begin_in(session(one), "slow")
    local waiting = far:open("tasks/result", { taskId = there })
    c:kill(one)
    assert.equal("working", farther:result("tasks/get", { taskId = there }).status)
    assert.equal(GONE, waiting:answer().error.message)
    assert.equal("failed", farther:result("tasks/get", { taskId = there }).status)
    local task = wait.for_fact("the task to have failed", BOUND, function()
      local answer = task_client.post(two, me, "tasks/get", { taskId = here })
      return answer.result and answer.result.status == "failed" and answer.result
    end)
    assert.equal(GONE, task.error.message)
    for _ = 1, 3 do
      assert.equal(GONE, task_client.result(three, me, "tasks/get", { taskId = here }).error.message)
    end
    assert.equal(2, failures(two, three))
    c:is_quiet()
  end)

  it("is called off where its process stood still and was taken for gone", function()
    local c <close>, one, two = start()
    settle(c.all)
    local far <close> = session(two)
    local ann = session(one)
    local id = begin_in(ann, "step")
    uv.kill(one.pid, "sigstop")
    local _ <close> = setmetatable({}, { __close = function() uv.kill(one.pid, "sigcont") end })
    see(far, id, "failed")
    uv.kill(one.pid, "sigcont")
    ann:result("tools/call", { name = "go", arguments = {} })
    one:wait_status(function(status) return status.gauges.jobs == 0 end, BOUND)
    assert.equal("failed", ann:result("tasks/get", { taskId = id }).status)
    assert.equal(GONE, ann:call("tasks/result", { taskId = id }).error.message)
    assert.equal("failed", far:result("tasks/get", { taskId = id }).status)
    assert.equal(1, failures(two))
  end)
end)
