-- What a client of MCP tasks does: each request on a connection of its own, so that any worker may serve it.
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local task_client = {}

local EMPTY <const> = { [" "] = 1 }

--- The extension of 2026-07-28, and capabilities with it and forms.
task_client.EXTENSION = "io.modelcontextprotocol/tasks"
task_client.CAN = { elicitation = { form = EMPTY }, extensions = { [task_client.EXTENSION] = EMPTY } }

--- The answer to a request of the client `c`.
function task_client.post(g, c, method, params)
  local message = c:message(method, params)
  return client.request(g, { method = "POST", path = "/mcp", headers = c:headers(message), body = message }):json()
end

--- The result of a request.
function task_client.result(g, c, method, params)
  local answer = task_client.post(g, c, method, params)
  return answer.result or error(method .. ": " .. answer.error.message, 2)
end

--- Waits until a task has a status, and returns the task.
function task_client.wait(g, c, id, status)
  local last
  local function named() return ("the task to be %s; it is %s"):format(status, last or "unknown") end
  return wait.for_fact(named, 20, function()
    local now = task_client.result(g, c, "tasks/get", { taskId = id })
    last = now.status
    return now.status == status and now
  end)
end

return task_client
