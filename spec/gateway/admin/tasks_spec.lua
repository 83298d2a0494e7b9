-- /api/tasks of the admin listener: MCP tasks of all workers, without whole ids, and their end.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local token, view = ("o"):rep(32), ("v"):rep(32)

local function start()
  local g = gateway.start { workers = 2, scripts = {
    ["tools/holds.lua"] = 'return tool { "Holds.", task = "required", function() sleep(300) end }',
    ["tools/quick.lua"] = 'return tool { "Is quick.", task = "required", function() return "done" end }',
  }, config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token }, view = { ann = view } } }, log = { audit = "audit.log" } } }
  wait.for_fact("the workers", 20, function()
    return client.request(g, { path = "/api/tasks", headers = { Authorization = "Bearer " .. view } }, { admin = true }).status == 200
  end)
  return g
end

local function api(g, method, path, bearer)
  return client.request(g, { method = method, path = path, headers = { Authorization = "Bearer " .. (bearer or token), ["moonpool-admin"] = "1" } },
    { admin = true })
end

local function list(g, page) return api(g, "GET", "/api/tasks?page=" .. (page or 0), view):json() end

describe("/api/tasks", function()
  it("lists tasks by the first digits of their ids, and cancels one", function()
    local g <close> = start()
    local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
    local one = task_client.result(g, c, "tools/call", { name = "holds", arguments = {} }).taskId
    local two = task_client.result(g, c, "tools/call", { name = "quick", arguments = {} }).taskId
    task_client.wait(g, c, two, "completed")
    local by_mark, answer = {}, list(g)
    for _, task in ipairs(answer.tasks) do by_mark[task.task] = task end
    assert.equal(2, #answer.tasks)
    assert.is_nil(answer.next)
    local held, quick = by_mark[one:sub(1, 8)], by_mark[two:sub(1, 8)]
    assert.same({ "holds", "working", "anonymous" }, { held.tool, held.status, held.principal })
    assert.same({ "quick", "completed", true }, { quick.tool, quick.status, quick.ended })
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT", held.created)
    assert.is_true(held.ttl_ms > 0)
    assert.is_nil(api(g, "GET", "/api/tasks").body:find(one, 1, true))
    assert.equal(403, api(g, "DELETE", "/api/task/" .. held.task, view).status)
    assert.equal(404, api(g, "DELETE", "/api/task/" .. held.task:sub(1, 7)).status)
    assert.equal(404, api(g, "DELETE", "/api/task/00000000").status)
    assert.equal(404, api(g, "DELETE", "/api/task/" .. quick.task).status)
    assert.equal(200, api(g, "DELETE", "/api/task/" .. held.task).status)
    assert.equal("cancelled by an operator", task_client.wait(g, c, one, "cancelled").statusMessage)
    wait.for_fact("the audit", 20, function()
      return g:file "audit.log":find('"event":"task cancelled by operator"[^\n]*"caller":"token joe"[^\n]*"why":"' .. held.task .. '"')
    end)
  end)

  it("has pages of 200", function()
    local g <close> = start()
    local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
    for _ = 1, 203 do task_client.result(g, c, "tools/call", { name = "quick", arguments = {} }) end
    local first = list(g)
    assert.same({ 200, 1 }, { #first.tasks, first.next })
    local second = list(g, 1)
    assert.equal(3, #second.tasks)
    assert.is_nil(second.next)
    assert.is_true(first.tasks[200].task <= second.tasks[1].task)
  end)
end)
