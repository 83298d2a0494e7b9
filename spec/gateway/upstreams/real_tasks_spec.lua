-- The official server-everything behind the gateway: its tool that runs only as an MCP task, which asks for a form, for
-- clients with and without tasks.
local real = require "spec.helpers.real"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local EMPTY <const> = { [" "] = 1 }
local QUERY <const> = { name = "simulate-research-query", arguments = { topic = "python", ambiguous = true } }

local function answer(c, form)
  assert.is_table(form.params.requestedSchema.properties.interpretation)
  c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = { interpretation = "snake" } } }
end

for _, transport in ipairs { "http", "stdio" } do
  describe("everything 2026.8.31 " .. transport, function()
    it("runs a tool as a task that asks, for clients of three revisions", function()
      local u <close> = real.start("everything 2026.8.31 " .. transport)
      local g <close> = upstream.gateway({ one = u }, { entries = { one = { list_wait = "30s", open = "60s", prefix = "" } } })

      local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = EMPTY } } })
      local support
      for _, tool in ipairs(c:result("tools/list").tools) do
        if tool.name == QUERY.name then support = tool.execution.taskSupport end
      end
      assert.equal("required", support)
      local task = c:result("tools/call", { name = QUERY.name, arguments = QUERY.arguments, task = { ttl = 120000 } }).task
      assert.equal(1000, task.pollInterval)

      local older <close> = g:client("2025-06-18", { capabilities = { elicitation = EMPTY } })
      local call = older:open("tools/call", QUERY)

      local modern <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = EMPTY },
        extensions = { ["io.modelcontextprotocol/tasks"] = EMPTY } } })
      local made = modern:result("tools/call", QUERY)
      assert.equal("task", made.resultType)

      local stream = c:open("tasks/result", { taskId = task.taskId })
      answer(c, stream:wait_event("elicitation/create", 60).json)
      answer(older, call:wait_event("elicitation/create", 60).json)
      local open = wait.for_fact("the task to ask", 60, function()
        local now = modern:result("tasks/get", { taskId = made.taskId })
        return now.status == "input_required" and now.inputRequests
      end)
      local key = next(open)
      modern:result("tasks/update", { taskId = made.taskId, inputResponses = {
        [key] = { action = "accept", content = { interpretation = "comedy" } } } })

      assert.truthy(upstream.text(stream:answer(60)):find("snake", 1, true))
      assert.truthy(upstream.text(call:answer(60)):find("snake", 1, true))
      local done = wait.for_fact("the task to end", 60, function()
        local now = modern:result("tasks/get", { taskId = made.taskId })
        return now.status == "completed" and now.result
      end)
      assert.truthy(done.content[1].text:find("comedy", 1, true))
      g:wait_status(function(status) return status.gauges.jobs == 0 end)
    end)
  end)
end
