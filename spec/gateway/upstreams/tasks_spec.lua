-- Tools of upstreams that run as MCP tasks: clients that can have tasks get one of the gateway's, others get the result
-- when it is there. Rules X-49 to X-54.
-- cannot: that a call becomes a task; clients 2025-11-25; upstreams 2026-07-28: no tool is offered as a task, and the call waits for the result
local credentials = require "spec.helpers.credentials"
local task_client = require "spec.helpers.task_client"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local EMPTY <const> = { [" "] = 1 }
local MODERN_CAN <const> = task_client.CAN
local FORM <const> = '{"message":"Name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}'
local KINDS <const> = { { "2025-11-25", "http" }, { "2025-11-25", "stdio" }, { "2025-11-25", "sse" }, { "2026-07-28", "http" }, { "2026-07-28", "stdio" } }

local post, result, wait_task = task_client.post, task_client.result, task_client.wait

local function definition(name, support)
  return ('{"name":"%s","inputSchema":{"type":"object"}%s}'):format(name, support and ',"execution":{"taskSupport":"' .. support .. '"}' or "")
end

local function start(options)
  options.tasks = true
  local u = upstream.start(options)
  u.handlers.task_hold = function(x) table.insert(u.held, x) end
  u.handlers.task_fail = function(_, reply) reply(nil, { -32123, "The stub fails" }) end
  u.handlers.task_complain = function(x, reply) reply(x:complete '{"content":[{"type":"text","text":"no"}],"isError":true}') end
  u.handlers.task_ask = function(x)
    x:ask("elicitation/create", FORM, function(_, text)
      x:result(x:complete('{"content":[{"type":"text","text":' .. upstream.raw.quote(text:match '"result":(.*)}$') .. "}]}"))
    end)
  end
  local all = options.revision == "2025-11-25"
  u:offer("tools", {
    definition("task_hold", all and "optional"), definition("task_must", all and "required"), definition("task_ask", all and "required"),
    definition("task_fail", all and "required"), definition("task_complain", all and "required"), definition "plain",
  })
  return u
end

local function wait_cancelled(u, count)
  wait.for_fact("the upstream's task to be cancelled", 20, function()
    u:all {}
    local n = 0
    for _, task in ipairs(u.tasks) do n = n + (task.cancelled and 1 or 0) end
    return n >= count
  end)
end

local function settled(g) g:wait_status(function(status) return status.gauges.jobs == 0 end) end

for _, kind in ipairs(KINDS) do
  local revision, transport = kind[1], kind[2]
  describe("a task of an upstream of " .. revision .. " over " .. transport, function()
    it("is a task of the gateway for a client of 2026-07-28 that declares tasks", function()
      local u <close> = start { revision = revision, transport = transport }
      local g <close> = upstream.gateway({ one = u }, { workers = 3 })
      local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
      local made = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} })
      assert.equal("task", made.resultType)
      assert.equal("working", made.status)
      assert.equal(36, #made.taskId)
      for _ = 1, 6 do assert.equal("working", result(g, c, "tasks/get", { taskId = made.taskId }).status) end
      u:wait_held(1)
      u:release()
      assert.equal("released", wait_task(g, c, made.taskId, "completed").result.content[1].text)
      assert.equal(1, u:ran "task_hold")
      local failed = wait_task(g, c, result(g, c, "tools/call", { name = "one_task_fail", arguments = {} }).taskId, "failed")
      assert.equal("The stub fails", failed.error.message)
      local complained = wait_task(g, c, result(g, c, "tools/call", { name = "one_task_complain", arguments = {} }).taskId, "completed")
      assert.is_true(complained.result.isError)
      assert.equal("complete", result(g, c, "tools/call", { name = "one_plain", arguments = {} }).resultType)
      for _, id in ipairs { u.tasks[1].id, ("a"):rep(32), "" } do
        local err = post(g, c, "tasks/get", { taskId = id }).error
        assert.same({ code = -32602, message = "unknown task" }, { code = err.code, message = err.message })
      end
      settled(g)
    end)

    it("asks the client by the gateway's task, and gets its answers", function()
      local u <close> = start { revision = revision, transport = transport }
      local g <close> = upstream.gateway({ one = u }, { workers = 3 })
      local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
      local id = result(g, c, "tools/call", { name = "one_task_ask", arguments = {} }).taskId
      local open = wait_task(g, c, id, "input_required").inputRequests
      local key, asked = next(open)
      assert.equal("Name?", asked.params.message)
      assert.is_nil(next(open, key))
      result(g, c, "tasks/update", { taskId = id, inputResponses = { [key] = { action = "accept", content = { name = "Ann" } } } })
      assert.truthy(wait_task(g, c, id, "completed").result.content[1].text:find('"Ann"', 1, true))
      assert.equal(1, u:ran "task_ask")
      settled(g)
    end)

    it("is cancelled with the gateway's task", function()
      local u <close> = start { revision = revision, transport = transport }
      local g <close> = upstream.gateway({ one = u }, { workers = 3 })
      local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
      for n = 1, 4 do
        local id = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId
        result(g, c, "tasks/cancel", { taskId = id })
        assert.equal("cancelled", result(g, c, "tasks/get", { taskId = id }).status)
        wait_cancelled(u, n)
      end
      settled(g)
    end)

    it("is cancelled when the call of a client without tasks ends", function()
      local u <close> = start { revision = revision, transport = transport }
      local g <close> = upstream.gateway { one = u }
      local c <close> = g:client("2025-06-18", { capabilities = {} })
      local stream = c:open("tools/call", { name = "one_task_hold", arguments = { key = "held" } })
      u:wait_held(1)
      if revision == "2026-07-28" then
        u:wait { method = "tasks/get" }
        c:notify("notifications/cancelled", { requestId = stream.id })
        wait_cancelled(u, 1)
      else
        u:release() -- the call does not have to run as a task, so the upstream answers it
        stream:answer(20)
        assert.equal(0, #u.tasks)
      end
    end)

    it("asks a client without tasks in its call", function()
      local u <close> = start { revision = revision, transport = transport }
      local g <close> = upstream.gateway({ one = u }, { workers = 2 })
      local c <close> = g:client("2025-06-18", { capabilities = { elicitation = EMPTY } })
      local stream = c:open("tools/call", { name = "one_task_ask", arguments = {} })
      local form = stream:wait_event("elicitation/create").json
      assert.equal("Name?", form.params.message)
      c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = { name = "Bea" } } }
      assert.truthy(upstream.text(stream:answer(20)):find('"Bea"', 1, true))

      if revision == "2026-07-28" then return end -- a client of its own revision: the upstream learns that it has no tasks
      local modern <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = EMPTY } } })
      local asked = result(g, modern, "tools/call", { name = "one_task_ask", arguments = {} })
      assert.equal("input_required", asked.resultType)
      local key, question = next(asked.inputRequests)
      assert.equal("Name?", question.params.message)
      local done = result(g, modern, "tools/call", { name = "one_task_ask", arguments = {}, requestState = asked.requestState,
        inputResponses = { [key] = { action = "accept", content = { name = "Cid" } } } })
      assert.truthy(done.content[1].text:find('"Cid"', 1, true))
      assert.equal(2, u:ran "task_ask")
      assert.equal(2, #u.tasks)
    end)

    for _, other in ipairs { "2024-11-05", "2025-06-18", "2026-07-28" } do
      it("is one call for a client of " .. other .. " without tasks, and ends with it", function()
        local u <close> = start { revision = revision, transport = transport }
        local g <close> = upstream.gateway { one = u }
        local c <close> = g:client(other, { capabilities = { elicitation = { form = EMPTY } } })
        for n = 1, 2 do
          assert.equal('{"n":' .. n .. "}", upstream.text(c:call("tools/call", { name = "one_task_must", arguments = { n = n } })))
        end
        assert.equal(revision == "2026-07-28" and other == revision and 0 or 2, #u.tasks)
        assert.equal(-32123, c:call("tools/call", { name = "one_task_fail", arguments = {} }).error.code)
        assert.is_true(c:call("tools/call", { name = "one_task_complain", arguments = {} }).result.isError)
      end)
    end
  end)
end

describe("a task of an upstream of 2025-11-25, for a client of that revision", function()
  for _, transport in ipairs { "http", "stdio" } do
    it("over " .. transport .. " is a task of the gateway with its own id, and its support is passed on", function()
      local u <close> = start { revision = "2025-11-25", transport = transport }
      local g <close> = upstream.gateway({ one = u }, { workers = 2 })
      local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = EMPTY } } })
      local support = {}
      for _, tool in ipairs(c:result("tools/list").tools) do support[tool.name] = tool.execution and tool.execution.taskSupport or "none" end
      assert.same({ one_task_hold = "optional", one_task_must = "required", one_task_ask = "required", one_task_fail = "required",
        one_task_complain = "required", one_plain = "none" }, support)

      u.task_poll = 200
      local made = c:result("tools/call", { name = "one_task_hold", arguments = {}, task = { ttl = 60000 } }).task
      assert.equal(60000, made.ttl)
      assert.equal(200, made.pollInterval)
      assert.are_not.equal(u.tasks[1].id, made.taskId)
      assert.equal("working", c:result("tasks/get", { taskId = made.taskId }).status)
      u:wait_held(1)
      u:release()
      local done = c:result("tasks/result", { taskId = made.taskId })
      assert.equal("released", done.content[1].text)
      assert.equal(made.taskId, done._meta["io.modelcontextprotocol/related-task"].taskId)

      local plain = c:open("tools/call", { name = "one_task_hold", arguments = {} })
      u:wait_held(1)
      u:release()
      assert.equal("released", upstream.text(plain:answer(20)))
      assert.equal(-32601, c:call("tools/call", { name = "one_task_must", arguments = {} }).error.code)
      assert.equal(-32601, c:call("tools/call", { name = "one_plain", arguments = {}, task = {} }).error.code)

      local complained = c:result("tools/call", { name = "one_task_complain", arguments = {}, task = {} }).task.taskId
      assert.is_true(c:result("tasks/result", { taskId = complained }).isError)
      assert.equal("failed", c:result("tasks/get", { taskId = complained }).status)

      local id = c:result("tools/call", { name = "one_task_hold", arguments = {}, task = {} }).task.taskId
      assert.equal("cancelled", c:result("tasks/cancel", { taskId = id }).status)
      wait_cancelled(u, 1)
      assert.equal(-32602, c:call("tasks/cancel", { taskId = id }).error.code)

      local asking = c:result("tools/call", { name = "one_task_ask", arguments = {}, task = {} }).task.taskId
      local stream = c:open("tasks/result", { taskId = asking })
      local form = stream:wait_event("elicitation/create").json
      assert.equal(asking, form.params._meta["io.modelcontextprotocol/related-task"].taskId)
      c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = { name = "Dan" } } }
      assert.truthy(upstream.text(stream:answer(20)):find('"Dan"', 1, true))
      settled(g)
    end)
  end

  it("ends with the lifetime that the upstream gives it, and fails when the upstream loses it", function()
    local u <close> = start { revision = "2025-11-25" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = {} })
    local id = c:result("tools/call", { name = "one_task_hold", arguments = {}, task = {} }).task.taskId
    u.tasks[u.tasks[1].id] = nil
    local failed = wait.for_fact("the task to fail", 20, function()
      local now = c:result("tasks/get", { taskId = id })
      return now.status == "failed" and now
    end)
    assert.equal(id, failed.taskId)
    local err = c:call("tasks/result", { taskId = id }).error
    assert.equal("task_lost", err.data.reason)

    u.task_ttl = 1500
    local short = c:result("tools/call", { name = "one_task_hold", arguments = {}, task = { ttl = 600000 } }).task
    assert.equal(1500, short.ttl)
    wait.for_fact("the task to be forgotten", 20, function() return c:call("tasks/get", { taskId = short.taskId }).error end)
    wait_cancelled(u, 1)
    settled(g)
  end)
end)

describe("a notification of an upstream about its task", function()
  for _, kind in ipairs(KINDS) do
    local revision, transport = kind[1], kind[2]
    it(("ends the wait between two polls, on any worker, for a task and for a call (%s over %s)"):format(revision, transport), function()
      local u <close> = start { revision = revision, transport = transport, strict = false }
      u.task_poll = 60000
      local g <close> = upstream.gateway({ one = u }, { workers = 3 })
      local method = revision == "2025-11-25" and "notifications/tasks/status" or "notifications/tasks"
      -- Notifies of the newest task of the upstream until a fact is there: the request that listens to the task may
      -- come later than the task.
      local function notify_until(what, is_over)
        return wait.for_fact(what, 40, function()
          u:announce(method, { taskId = u.tasks[#u.tasks].id })
          return is_over()
        end)
      end
      local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
      for n = 1, 3 do
        local id = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId
        u:wait_held(1)
        u:release()
        local done = notify_until("the task to end", function()
          local now = result(g, c, "tasks/get", { taskId = id })
          return now.status == "completed" and now
        end)
        assert.equal("released", done.result.content[1].text)
        assert.equal(n, u:ran "task_hold")
      end
      local older <close> = g:client("2025-06-18", { capabilities = { elicitation = EMPTY } })
      if revision == "2026-07-28" then
        local stream = older:open("tools/call", { name = "one_task_hold", arguments = {} })
        u:wait_held(1)
        u:release()
        local polls = #u:all { method = "tasks/get" }
        notify_until("a poll", function() return #u:all { method = "tasks/get" } > polls end)
        assert.equal("released", upstream.text(stream:answer(20)))
      end
      settled(g)
    end)
  end

  it("is asked for once for many tasks, and no more when they have ended", function()
    local u <close> = start { revision = "2026-07-28" }
    u.task_poll = 1000
    local g <close> = upstream.gateway({ one = u }, { workers = 2 })
    local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
    wait.for_fact("the request that listens", 20, function() return #u:listening() == 1 end)
    local ids = {}
    for n = 1, 20 do ids[n] = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId end
    wait.for_fact("all tasks to be listened for", 20, function()
      local open = u:listening()
      return #open == 1 and #(open[1].filter.taskIds or {}) == 20
    end)
    assert.is_true(#u.listens <= 21)
    u:wait_held(20)
    u:release()
    for _, id in ipairs(ids) do wait_task(g, c, id, "completed") end
    wait.for_fact("no task to be listened for", 20, function()
      local open = u:listening()
      return #open == 1 and open[1].filter.taskIds == nil
    end)
    settled(g)
  end)

  it("is asked for where each principal, session or call has a channel of its own", function()
    for _, per in ipairs { "principal", "session", "call" } do
      local u <close> = start { revision = "2026-07-28" }
      u.task_poll = 60000
      local g <close> = upstream.gateway({ one = u }, { workers = 2, entries = { one = { per = per } } })
      local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
      local id = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId
      wait.for_fact("the task to be listened for", 20, function()
        for _, open in ipairs(u:listening()) do
          if #(open.filter.taskIds or {}) == 1 then return true end
        end
      end)
      u:wait_held(1)
      u:release()
      wait.for_fact("the task to end long before the next poll", 20, function()
        u:announce("notifications/tasks", { taskId = u.tasks[#u.tasks].id })
        return result(g, c, "tasks/get", { taskId = id }).status == "completed"
      end)
      settled(g)
    end
  end)

  it("is not waited for: a task of an upstream without notifications of tasks is polled", function()
    local u <close> = start { revision = "2026-07-28", listen = false }
    u.task_poll = 1100
    local g <close> = upstream.gateway({ one = u }, { workers = 2 })
    local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
    local id = result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId
    u:wait_held(1)
    u:release()
    wait_task(g, c, id, "completed")
    settled(g)
  end)
end)

describe("a task of an upstream", function()
  it("that goes on when the client's session has ended is asked about on one channel", function()
    local u <close> = start { revision = "2025-11-25", strict = false }
    local g <close> = upstream.gateway { one = u }
    local c = g:client("2025-11-25", { capabilities = {} })
    c:result("tools/call", { name = "one_task_hold", arguments = {}, task = {} })
    c:close()
    u:wait { method = "tasks/get" }
    local asked = #u:all { method = "tasks/get" }
    u:wait({ method = "tasks/get" }, asked + 5)
    assert.is_true(#u:all { method = "initialize" } <= 3)
    u:wait_held(1)
    u:release()
    settled(g)
  end)

  it("has policies around its call and around its result, and counts once for a limit", function()
    local u <close> = start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { scripts = {
      ["policy/seen.lua"] = [[return policy { function(call, next)
        log.info("policy", { phase = call.phase or "none" })
        local result = next(call)
        log.info("result seen", { phase = call.phase or "none" })
        return result
      end }]],
      ["policy/few.lua"] = "return limit { rate = 1, burst = 1, per = 1 * hours }",
    } })
    local c <close> = g:client("2026-07-28", { capabilities = MODERN_CAN })
    local id = result(g, c, "tools/call", { name = "one_task_must", arguments = {} }).taskId
    wait_task(g, c, id, "completed")
    g:wait_log("policy", { phase = "none" })
    g:wait_log("policy", { phase = "run" })
    g:wait_log("result seen", { phase = "run" })
    assert.truthy(upstream.text(c:call("tools/call", { name = "one_task_must", arguments = {} })):find "try again")
    assert.equal(1, u:ran "task_must")
    settled(g)
  end)

  it("belongs to its principal: others do not know it, and tasks/list shows each its own", function()
    local u <close> = start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { workers = 2, scripts = { ["auth/main.lua"] = credentials.script } })
    local a <close> = g:client("2025-11-25", { token = "ann-1", capabilities = {} })
    local b <close> = g:client("2025-11-25", { token = "bob-1", capabilities = {} })
    local ids = {}
    for i = 1, 3 do ids[i] = a:result("tools/call", { name = "one_task_hold", arguments = {}, task = {} }).task.taskId end
    for _, method in ipairs { "tasks/get", "tasks/result", "tasks/cancel" } do
      local err = b:call(method, { taskId = ids[1] }).error
      assert.same({ -32602, "unknown task" }, { err.code, err.message })
    end
    assert.equal(0, #b:result("tasks/list", {}).tasks)
    local listed = {}
    for _, task in ipairs(a:result("tasks/list", {}).tasks) do listed[task.taskId] = true end
    for _, id in ipairs(ids) do assert.is_true(listed[id]) end
    for _, id in ipairs(ids) do a:result("tasks/cancel", { taskId = id }) end
    wait_cancelled(u, 3)
    settled(g)
  end)
end)
