-- Tasks of several nodes: each node reads, lists, answers and cancels them, whichever runs them, and tells those who
-- follow them.
local cluster = require "spec.helpers.cluster"
local fanned = require "spec.helpers.fanned"
local shared_tasks = require "spec.helpers.shared_tasks"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local it = cluster.it(it, pending)
local start, modern, session, begin, begin_in, see = shared_tasks.start, shared_tasks.modern, shared_tasks.session, shared_tasks.begin,
  shared_tasks.begin_in, shared_tasks.see
local BOUND <const> = shared_tasks.BOUND

describe("a task of another node", function()
  it("is read, listed, waited for, answered and cancelled by any session of its principal", function()
    local c <close>, one, two, three = start { nodes = 3, workers = 2 }
    local ann, far, bob, farther = session(one), session(two), session(two, "bob-1"), session(three)
    local slow, asks = begin_in(ann, "slow"), begin_in(ann, "name")
    assert.equal("working", far:result("tasks/get", { taskId = slow }).status)
    see(far, asks, "input_required")
    local listed = {}
    for _, task in ipairs(far:result("tasks/list", {}).tasks) do listed[task.taskId] = task.status end
    assert.same({ [slow] = "working", [asks] = "input_required" }, listed)
    assert.same({}, bob:result("tasks/list", {}).tasks)
    for _, method in ipairs { "tasks/get", "tasks/cancel", "tasks/result" } do
      assert.equal("unknown task", bob:call(method, { taskId = slow }).error.message)
    end
    local stream = far:open("tasks/result", { taskId = asks })
    local question = stream:wait_event("elicitation/create").json
    assert.equal(202, far:post({ jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { name = "Ann" } } }).status)
    assert.equal("Ann", stream:answer().result.content[1].text)
    assert.equal("Ann", farther:result("tasks/result", { taskId = asks }).content[1].text)
    local waiting = far:open("tasks/result", { taskId = slow })
    assert.equal("cancelled", farther:result("tasks/cancel", { taskId = slow }).status)
    assert.equal("the task was cancelled", waiting:answer().error.message)
    one:wait_status(function(status) return status.gauges.jobs == 0 end, BOUND)
    for _, each in ipairs { ann, far, bob, farther } do
      each:delete()
      each:close()
    end
    c:is_quiet()
  end)

  it("tells those who listen to it", function()
    local c <close>, one, two = start()
    fanned.wait_listeners(c.server, 2)
    local me <close> = modern(one)
    local other <close> = modern(two)
    local id = begin(one, me, "slow")
    local stream = other:open("subscriptions/listen", { notifications = { taskIds = { id } } })
    assert.same({ id }, stream:wait_event("notifications/subscriptions/acknowledged").json.params.notifications.taskIds)
    task_client.result(two, other, "tasks/cancel", { taskId = id })
    assert.equal("cancelled", stream:wait_event("notifications/tasks").json.params.status)
    stream:close()
    c:is_quiet()
  end)

  it("keeps a result of more than 1 MiB at its node, and says so elsewhere", function()
    local c <close>, one, two = start()
    local ann <close> = session(one)
    local far <close> = session(two)
    local id = begin_in(ann, "large")
    see(ann, id, "completed")
    see(far, id, "completed")
    assert.matches("its result has more than 1 MiB", far:call("tasks/result", { taskId = id }).error.message, 1, true)
    assert.equal(2 * 1024 * 1024, #ann:result("tasks/result", { taskId = id }).content[1].text)
    c:is_quiet()
  end)
end)

describe("the keys of tasks", function()
  it("are gone once the tasks are over, and all others but the records have a time to live", function()
    local c <close>, one, two = start()
    local ann, far = session(one), session(two)
    for _ = 1, 5 do
      local id = begin_in(ann, "slow", 2000)
      far:result("tasks/cancel", { taskId = id })
    end
    assert.equal(5, #far:result("tasks/list", {}).tasks)
    local forever = { ["mp:spec:n"] = true, ["mp:spec:id"] = true, ["mp:spec:w"] = true }
    local count = 0
    for key in c.server:cli("KEYS", "*"):gmatch "[^\n]+" do
      count = count + 1
      assert.is_true(forever[key] or tonumber((c.server:cli("PTTL", key))) > 0, key)
    end
    assert.is_true(count >= 6)
    for _, each in ipairs { ann, far } do
      each:delete()
      each:close()
    end
    wait.for_fact("the keys of tasks to go", BOUND, function()
      return not c.server:cli("KEYS", "mp:spec:t*"):find "mp:"
    end)
    c:is_quiet()
  end)
end)
