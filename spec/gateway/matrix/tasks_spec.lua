-- MCP tasks in all cells of the matrix (spec/helpers/matrix.lua): of 2025-11-25, and of the extension of 2026-07-28. A task
-- is that of its principal: for any other one there is none.
-- pairs: calls of tools that may run as tasks; clients 2024-11-05..; upstreams 2024-11-05 sse http stdio
-- pairs: calls of tools that may run as tasks; clients 2024-11-05..; upstreams 2025-03-26.. http stdio
local cjson = require "cjson.safe"
local matrix = require "spec.helpers.matrix"
local wait = require "spec.helpers.wait"

local EXTENSION <const> = "io.modelcontextprotocol/tasks"
local CAN <const> = "io.modelcontextprotocol/clientCapabilities"

-- The stub offers the tool `task_hold`, which may run as a task.
local function prepare(u)
  local plain = u.offered
  function u:offered(kind, revision)
    local list = table.move(plain(self, kind, revision), 1, 100, 1, {})
    if kind ~= "tools" then return list end
    local support = revision == "2025-11-25" and ',"execution":{"taskSupport":"optional"}' or ""
    list[#list + 1] = { name = "task_hold", bytes = '{"name":"task_hold","inputSchema":{"type":"object"}' .. support .. "}" }
    return list
  end
  function u.handlers.task_hold(x) table.insert(u.held, x) end
end

local function params(cell, more)
  cell.key = "task " .. #cell.u.received
  local all = { name = cell:named "task_hold", arguments = { key = cell.key } }
  for name, value in pairs(more or {}) do all[name] = value end
  return all
end

local function wait_status(cell, id, status)
  return wait.for_fact("the task to be " .. status, 20, function()
    local now = cell.ann:result("tasks/get", { taskId = id })
    return now.status == status and now
  end)
end

describe("tasks:", function()
  local m = matrix.group("tasks", {
    prepare = prepare, stub = { tasks = true }, listen = {},
    capabilities = function(kind) return kind.revision == "2026-07-28" and { extensions = { [EXTENSION] = {} } } or {} end,
  })
  lazy_setup(function() m:begin() end)
  lazy_teardown(function() m:finish() end)

  m:feature("a call of a tool that may run as a task", function(cell)
    local stream = cell.ann:open("tools/call", params(cell, { _meta = { [CAN] = cell.kind.revision == "2026-07-28" and {} or nil } }))
    cell.u:wait_held(1, cell.key)
    cell:release(stream)
    assert.same({}, cell.ann:notes())
  end)

  m:feature("a task of the client", function(cell)
    if cell.expected ~= "whole" then
      if cell.kind.revision ~= "2025-11-25" then return assert.is_number(cell.ann:call("tasks/list", {}).error.code) end
      assert.equal(-32601, cell.ann:call("tools/call", params(cell, { task = { ttl = 60000 } })).error.code)
      return
    end
    local id = cell.ann:result("tools/call", params(cell, { task = { ttl = 60000 } })).task.taskId
    cell.u:wait_held(1, cell.key)
    assert.equal("working", cell.ann:result("tasks/get", { taskId = id }).status)
    local has = function(peer)
      local answer = peer:call("tasks/list", {})
      for _, task in ipairs(answer.result and answer.result.tasks or {}) do
        if task.taskId == id then return true end
      end
      return false
    end
    assert.equal(cell.kind.transport == "http", has(cell.ann)) -- a program has no principal by which tasks could be listed
    assert.is_false(has(cell.bob))
    for _, method in ipairs { "tasks/get", "tasks/result", "tasks/cancel" } do
      assert.equal(-32602, cell.bob:call(method, { taskId = id }).error.code)
    end
    local stream = cell.ann:open("tasks/result", { taskId = id })
    cell.u:release(cell.key)
    local done = stream:answer().result
    assert.equal("released", done.content[1].text)
    assert.equal("completed", cell.ann:result("tasks/get", { taskId = id }).status)

    local other = cell.ann:result("tools/call", params(cell, { task = {} })).task.taskId
    cell.u:wait_held(1, cell.key)
    assert.equal("cancelled", cell.ann:result("tasks/cancel", { taskId = other }).status)
    wait.for_fact("the upstream's task to be cancelled", 20, function()
      cell.u:all {}
      return cell.u.tasks[#cell.u.tasks].cancelled
    end)
    cell:fence()
    local told = {}
    for _, note in ipairs(cell.ann:notes()) do
      assert.equal("notifications/tasks/status", note.method)
      told[#told + 1] = (note.params.taskId == id and "first " or "second ") .. note.params.status
    end
    assert.same({ "first completed", "second cancelled" }, told)
  end)

  m:feature("a task of the extension", function(cell)
    local call = params(cell)
    if cell.expected ~= "whole" then return assert.is_number(cell.ann:call("tasks/update", { taskId = "t" }).error.code) end
    if cell.form.revision < "2025-11-25" then -- the upstream makes no task of it
      local stream = cell.ann:open("tools/call", call)
      cell.u:wait_held(1, cell.key)
      return cell:release(stream)
    end
    local made = cell.ann:result("tools/call", call)
    assert.equal("task", made.resultType, cjson.encode(made))
    assert.equal(-32602, cell.bob:call("tasks/get", { taskId = made.taskId }).error.code)
    cell.u:wait_held(1, cell.key)
    cell.u:release(cell.key)
    assert.equal("released", wait_status(cell, made.taskId, "completed").result.content[1].text)
    call = params(cell)
    local other = cell.ann:result("tools/call", call).taskId
    cell.u:wait_held(1, cell.key)
    cell.ann:result("tasks/cancel", { taskId = other })
    assert.equal("cancelled", cell.ann:result("tasks/get", { taskId = other }).status)
    assert.same({}, cell.ann:notes())
  end)

  m:specs(it)
end)
