-- Tasks of several nodes.
--   local c <close>, one, two = shared_tasks.start()
local cluster = require "spec.helpers.cluster"
local credentials = require "spec.helpers.credentials"
local nodes = require "spec.helpers.nodes"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local shared_tasks = {}

shared_tasks.BOUND = 20 * wait.slower -- seconds
shared_tasks.STALE_S = 1.5
shared_tasks.GONE = "the node that ran it is gone; it may have done part of its work"

local QUICK <const> = { node_turn_ms = 100, node_stale_ms = shared_tasks.STALE_S * 1000 // 1 | 0, task_again_ms = 1000 }

local scripts = {
  ["auth/tokens.lua"] = credentials.script,
  ["tools/slow.lua"] = 'return tool { "Slow.", task = "optional", timeout = 300, function() sleep(300) end }',
  ["tools/name.lua"] = [[return tool { "Asks, as a task.", task = "optional", timeout = 300, function(_, call)
    local said, whys = call:ask { name = ask.elicit("Name?", { name = t.string }) }
    return try(said.name, whys.name).name
  end }]],
  ["tools/step.lua"] = [[return tool { "Says that it goes on, when it may.", task = "optional", timeout = 300, function(_, call)
    while not store.near.get "go" do sleep(0.05) end
    call:status "going on"
    sleep(300)
  end }]],
  ["tools/go.lua"] = [[return tool { "Lets the tool step go on.", function()
    try(store.near.set("go", true))
    return "done"
  end }]],
  ["tools/large.lua"] = [[return tool { "Large.", task = "optional", function() return ("x"):rep(2 * 1024 * 1024) end }]],
}

--- Nodes whose times are shorter; options of cluster.start.
function shared_tasks.start(options)
  options = options or {}
  options.scripts, options.constants = scripts, QUICK
  return cluster.start(options)
end

--- A client of 2026-07-28, and a session.
function shared_tasks.modern(g) return g:client("2026-07-28", { token = "ann-1", capabilities = task_client.CAN }) end
function shared_tasks.session(g, token) return g:client("2025-11-25", { token = token or "ann-1", capabilities = { elicitation = {} } }) end

--- The id of a task of a client at `g`, or of a session.
function shared_tasks.begin(g, c, tool) return task_client.result(g, c, "tools/call", { name = tool }).taskId end
function shared_tasks.begin_in(c, tool, ttl)
  return c:result("tools/call", { name = tool, arguments = {}, task = { ttl = ttl or 300000 } }).task.taskId
end

--- Waits until a session sees a task in a status.
function shared_tasks.see(c, id, status)
  wait.for_fact("the task to be " .. status, shared_tasks.BOUND, function() return c:result("tasks/get", { taskId = id }).status == status end)
end

--- How often nodes have logged that they found a task's node gone.
function shared_tasks.failures(...)
  local count = 0
  for _, g in ipairs { ... } do count = count + select(2, g:log():gsub("node of a task gone", "")) end
  return count
end

--- Waits until all nodes know each other, and are sure of what they do not know.
function shared_tasks.settle(all)
  for _, g in ipairs(all) do
    nodes.wait(g, function(known) return #known.nodes == #all end)
  end
  wait.quietly(shared_tasks.STALE_S)
end

return shared_tasks
