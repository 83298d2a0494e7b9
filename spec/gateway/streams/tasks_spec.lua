-- Calls that run as MCP tasks: one tool, in both revisions that have tasks; the client may ask any worker about its
-- task. Rules TA, TX.
local gateway = require "spec.helpers.gateway"
local task_client = require "spec.helpers.task_client"

local extension = task_client.EXTENSION
local form = { form = { [" "] = 1 } }
local modern_can = task_client.CAN
local legacy_can = { elicitation = form }

local scripts = {
  ["tools/plain.lua"] = 'return tool { "Plain.", function() return "plain" end }',
  ["tools/slow.lua"] = [[
return tool { "Slow.", task = "optional", input = { seconds = t.number { default = 60 } }, function(args, call)
  local gate <close> = closing(function() log.info("gate closed", { task = call.task or "none" }) end)
  call:status "at work"
  log.info("begun", { task = call.task or "none" })
  sleep(args.seconds)
  return "done"
end }]],
  ["tools/must.lua"] = 'return tool { "Must.", task = "required", function() return nil, "it failed" end }',
  ["tools/ask.lua"] = [[
return tool { "Ask.", task = "optional", function(_, call)
  local said, whys = call:ask { name = ask.elicit("Name?", { name = t.string }), sure = ask.elicit("Sure?", { yes = t.boolean }) }
  return try(said.name, whys.name).name .. " " .. tostring(try(said.sure, whys.sure).yes)
end }]],
}

local post, result, wait_task = task_client.post, task_client.result, task_client.wait

describe("a task of 2026-07-28", function()
  local g, c
  before_each(function()
    g = gateway.start { scripts = scripts, workers = 3 }
    c = g:client("2026-07-28", { capabilities = modern_can })
  end)

  local function over()
    local served <close> = g -- luacheck: ignore 211
    c:close()
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
    assert.has_nothing_left(g)
  end

  it("exists on every worker at once, goes on without its request, and ends with the result of its tool", function()
    for _ = 1, 10 do
      local made = result(g, c, "tools/call", { name = "slow", arguments = { seconds = 0.02 } })
      assert.equal("task", made.resultType)
      assert.equal("working", made.status)
      for _ = 1, 3 do assert.equal(made.taskId, result(g, c, "tasks/get", { taskId = made.taskId }).taskId) end
      local done = wait_task(g, c, made.taskId, "completed")
      assert.equal("done", done.result.content[1].text)
      assert.equal("at work", done.statusMessage)
    end
    over()
  end)

  it("accepts answers one by one on any worker, each shown by the next tasks/get", function()
    for _ = 1, 10 do
      local id = result(g, c, "tools/call", { name = "ask" }).taskId
      local open = wait_task(g, c, id, "input_required").inputRequests
      assert.equal("Name?", open.name.params.message)
      assert.truthy(open.sure)
      result(g, c, "tasks/update", { taskId = id, inputResponses = { name = { action = "accept", content = { name = "Ann" } }, x = {} } })
      local now = result(g, c, "tasks/get", { taskId = id })
      assert.equal("input_required", now.status)
      assert.is_nil(now.inputRequests.name)
      assert.truthy(now.inputRequests.sure)
      result(g, c, "tasks/update", { taskId = id, inputResponses = { sure = { action = "accept", content = { yes = true } } } })
      assert.equal("Ann true", wait_task(g, c, id, "completed").result.content[1].text)
    end
    over()
  end)

  it("can be cancelled on any worker: its status is then cancelled, and its function unwound", function()
    for _ = 1, 6 do
      local id = result(g, c, "tools/call", { name = "slow" }).taskId
      g:wait_log("begun", { task = id })
      result(g, c, "tasks/cancel", { taskId = id })
      assert.equal("cancelled", result(g, c, "tasks/get", { taskId = id }).status)
      g:wait_log("gate closed", { task = id })
      assert.equal("complete", result(g, c, "tasks/cancel", { taskId = id }).resultType)
    end
    over()
  end)

  it("has failed when its job was ended while its <close> handlers used up all time for cleanup", function()
    over()
    g = gateway.start { scripts = { ["tools/stuck.lua"] = [[
return tool { "Never cleans up.", task = "optional", timeout = 0.1, function()
  local gate <close> = closing(function() while true do end end)
  sleep(60)
end }]] }, workers = 2, constants = { cleanup_ms = 100 } }
    c = g:client("2026-07-28", { capabilities = modern_can })
    for _ = 1, 3 do
      local id = result(g, c, "tools/call", { name = "stuck" }).taskId
      assert.truthy(wait_task(g, c, id, "failed").error.message:find "^the task ")
    end
    over()
  end)

  it("is sent whole to its subscribers, on every change", function()
    local id = result(g, c, "tools/call", { name = "ask" }).taskId
    wait_task(g, c, id, "input_required")
    local stream = c:open("subscriptions/listen", { notifications = { taskIds = { id, ("0"):rep(36) } } })
    assert.same({ taskIds = { id } }, stream:wait_event("notifications/subscriptions/acknowledged").json.params.notifications)
    local answers = { name = { action = "accept", content = { name = "Al" } }, sure = { action = "accept", content = { yes = false } } }
    result(g, c, "tasks/update", { taskId = id, inputResponses = answers })
    local last = stream:wait_event(function(event) return event.json and event.json.params and event.json.params.status == "completed" end).json
    assert.equal("notifications/tasks", last.method)
    assert.equal(id, last.params.taskId)
    assert.equal("Al false", last.params.result.content[1].text)
    assert.equal(stream.id, last.params._meta["io.modelcontextprotocol/subscriptionId"])
    over()
  end)

  it("needs the client's tasks extension, where the tool runs only as a task", function()
    local plain <close> = g:client "2026-07-28"
    local answer, response = plain:call("tools/call", { name = "must" })
    assert.equal(400, response.status)
    assert.equal(-32021, answer.error.code)
    assert.truthy(answer.error.data.requiredCapabilities.extensions[extension])
    assert.equal("done", plain:call("tools/call", { name = "slow", arguments = { seconds = 0 } }).result.content[1].text)
    local failed = wait_task(g, c, result(g, c, "tools/call", { name = "must" }).taskId, "completed")
    assert.is_true(failed.result.isError)
    local id = result(g, c, "tools/call", { name = "slow", arguments = { seconds = 0 } }).taskId
    for _, method in ipairs { "tasks/get", "tasks/update", "tasks/cancel" } do
      local err = plain:call(method, { taskId = id, inputResponses = { a = {} } })
      assert.equal(-32021, err.error.code)
      assert.equal(-32602, c:call(method, { taskId = ("a"):rep(36), inputResponses = { a = {} } }).error.code)
    end
    plain:close()
    over()
  end)
end)

describe("a task of 2025-11-25", function()
  local g, c
  before_each(function()
    g = gateway.start { scripts = scripts, workers = 3 }
    c = g:client("2025-11-25", { capabilities = legacy_can })
  end)

  local function over()
    local served <close> = g -- luacheck: ignore 211
    c:delete()
    c:close()
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
    assert.has_nothing_left(g)
  end

  local function make(name, arguments, ttl)
    return result(g, c, "tools/call", { name = name, arguments = arguments, task = { ttl = ttl or 60000 } }).task
  end

  it("is created when the client requests it; its session is notified of its status, and gets the result when it exists", function()
    local own = c:get_stream()
    own:head()
    assert.same({ cancel = {}, requests = { tools = { call = {} } } }, c.server.capabilities.tasks)
    local made = make("slow", { seconds = 0.1 })
    assert.equal("working", made.status)
    assert.equal(60000, made.ttl)
    local answer = result(g, c, "tasks/result", { taskId = made.taskId })
    assert.equal("done", answer.content[1].text)
    assert.equal(made.taskId, answer._meta["io.modelcontextprotocol/related-task"].taskId)
    local told = own:wait_event(function(event) return event.json and event.json.params and event.json.params.status == "completed" end).json
    assert.equal("notifications/tasks/status", told.method)
    assert.equal(made.taskId, told.params.taskId)
    assert.equal("done", result(g, c, "tools/call", { name = "slow", arguments = { seconds = 0 } }).content[1].text)
    assert.equal(-32601, post(g, c, "tools/call", { name = "must" }).error.code)
    assert.equal(-32601, post(g, c, "tools/call", { name = "plain", task = { ttl = 1 } }).error.code)
    assert.equal(-32601, post(g, c, "tasks/list").error.code)
    over()
  end)

  it("asks its questions on the stream of tasks/result", function()
    for _ = 1, 5 do
      local id = make("ask").taskId
      wait_task(g, c, id, "input_required")
      local stream = c:open("tasks/result", { taskId = id })
      for _, content in ipairs { { name = "Ann" }, { yes = true } } do
        local question = stream:wait_event "elicitation/create".json
        assert.equal(id, question.params._meta["io.modelcontextprotocol/related-task"].taskId)
        assert.equal(202, c:post({ jsonrpc = "2.0", id = question.id, result = { action = "accept", content = content } }).status)
      end
      assert.equal("Ann true", stream:answer().result.content[1].text)
      assert.equal("completed", result(g, c, "tasks/get", { taskId = id }).status)
    end
    over()
  end)

  it("cancels a question that another stream has answered, or whose task has ended", function()
    local id = make("ask").taskId
    wait_task(g, c, id, "input_required")
    local one, two = c:open("tasks/result", { taskId = id }), c:open("tasks/result", { taskId = id })
    local first, stale = one:wait_event("elicitation/create").json, two:wait_event("elicitation/create").json
    c:post { jsonrpc = "2.0", id = first.id, result = { action = "accept", content = { name = "Ann" } } }
    assert.equal(stale.id, two:wait_event("notifications/cancelled").json.params.requestId)
    local last = { one:wait_event("elicitation/create").json.id, two:wait_event("elicitation/create").json.id }
    result(g, c, "tasks/cancel", { taskId = id })
    for i, stream in ipairs { one, two } do
      assert.equal(last[i], stream:wait_event("notifications/cancelled").json.params.requestId)
      assert.equal("the task was cancelled", stream:answer().error.message)
    end
    over()
  end)

  it("is cancelled once, has failed when its result is an error, and is hidden from other principals (B-30)", function()
    local id = make("slow").taskId
    local waits = c:open("tasks/result", { taskId = id })
    assert.equal("cancelled", result(g, c, "tasks/cancel", { taskId = id }).status)
    assert.equal(-32602, post(g, c, "tasks/cancel", { taskId = id }).error.code)
    assert.equal("the task was cancelled", waits:answer().error.message)
    local failed = make("must").taskId
    assert.is_true(result(g, c, "tasks/result", { taskId = failed }).isError)
    assert.equal("failed", result(g, c, "tasks/get", { taskId = failed }).status)
    local other <close> = g:client("2025-11-25", { capabilities = legacy_can })
    for _, method in ipairs { "tasks/get", "tasks/result", "tasks/cancel" } do
      local foreign, random = post(g, other, method, { taskId = failed }).error, post(g, other, method, { taskId = ("a"):rep(36) }).error
      assert.same({ code = -32602, message = "unknown task" }, foreign)
      assert.same(random, foreign)
    end
    other:delete()
    other:close()
    over()
  end)

  it("is freed when its ttl is over, and its function is cancelled if it still runs", function()
    local id = make("slow", nil, 1000).taskId
    g:wait_log("begun", { task = id })
    g:wait_log("gate closed", { task = id })
    assert.equal(-32602, post(g, c, "tasks/get", { taskId = id }).error.code)
    over()
  end)
end)

describe("a task", function()
  it("ends with the gateway: its function unwinds, and the stream of a waiting subscriber ends", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { drain = "100ms" } } }
    local c <close> = g:client("2026-07-28", { capabilities = modern_can })
    local id = result(g, c, "tools/call", { name = "slow" }).taskId
    g:wait_log("begun", { task = id })
    c:open("subscriptions/listen", { notifications = { taskIds = { id } } }):wait "notifications/subscriptions/acknowledged"
    g:signal "sigterm"
    g:wait_log("gate closed", { task = id })
    assert.equal(0, g:wait_exit())
  end)

  it("counts towards a cap", function()
    local g <close> = gateway.start { scripts = scripts, constants = { tasks = 2 } }
    local c <close> = g:client("2026-07-28", { capabilities = modern_can })
    local ids = {}
    for i = 1, 2 do ids[i] = result(g, c, "tools/call", { name = "slow" }).taskId end
    assert.equal("too many tasks run: try again later", post(g, c, "tools/call", { name = "slow" }).error.message)
    for _, id in ipairs(ids) do result(g, c, "tasks/cancel", { taskId = id }) end
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
    c:close()
    assert.has_nothing_left(g)
  end)
end)
