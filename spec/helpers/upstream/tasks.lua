-- MCP tasks of a stub upstream: of 2025-11-25, where the call asks for one, and of 2026-07-28, where the server makes
-- one of each call of a tool whose name begins with "task". `server.tasks` has them in order: { id, status, ttl, poll,
-- text = the outcome, questions, cancelled }.
local cjson = require "cjson.safe"
local raw = require "spec.helpers.upstream.raw"

local tasks = { methods = {} }

local EXTENSION <const> = "io.modelcontextprotocol/tasks"
local RELATED <const> = "io.modelcontextprotocol/related-task"
local AT <const> = '"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"'

--- The members of the capabilities at a revision.
function tasks.capability(revision)
  if revision == "2026-07-28" then return '"extensions":{"' .. EXTENSION .. '":{}},' end
  return revision == "2025-11-25" and '"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},' or ""
end

-- The members of a task, without braces.
local function shown(x, task)
  local names = x.modern and { "ttlMs", "pollIntervalMs" } or { "ttl", "pollInterval" }
  return ('"taskId":%s,"status":"%s"%s,%s,"%s":%s%s'):format(raw.quote(task.id), task.status,
    task.message and ',"statusMessage":' .. raw.quote(task.message) or "", AT, names[1], task.ttl or "null",
    task.poll and (',"%s":%d'):format(names[2], task.poll) or "")
end

local ended <const> = { completed = true, failed = true, cancelled = true }

-- Sends the outcome to what waits for it.
local function deliver(task)
  for _, x in ipairs(task.waiters) do
    if task.fault then
      x:error(task.fault[1], task.fault[2], task.fault[3])
    elseif task.status == "cancelled" then
      x:error(-32603, "The task was cancelled")
    else
      x:result(('{"_meta":{"%s":{"taskId":%s}},%s'):format(RELATED, raw.quote(task.id), task.text:sub(2)))
    end
  end
  task.waiters = {}
end

local function finish(task, status, text, fault)
  if ended[task.status] then return end
  task.status, task.text, task.fault = status, text, fault
  deliver(task)
end

-- Asks the questions that were not asked yet on a tasks/result.
local function flush(task)
  local x = task.waiters[1]
  if not x or x.modern then return end
  for _, one in ipairs(task.questions) do
    if not one.is_asked then
      one.is_asked = true
      x:ask(one.method, one.params, function(json, text)
        one.is_answered = true
        task.status = "working"
        one.done(json, text)
      end)
    end
  end
end

-- The exchange as the handler of the tool sees it: what it answers is the outcome of the task.
local function inner(x, task)
  local y = { task = task, over = false }
  function y.result(_, bytes)
    y.over = true
    finish(task, not x.modern and bytes:find('"isError":true', 1, true) and "failed" or "completed", bytes)
  end
  function y.error(_, ...)
    y.over = true
    finish(task, "failed", nil, { ... })
  end
  function y.emit() return y end
  function y.ask(_, method, params, done)
    task.status = "input_required"
    task.questions[#task.questions + 1] = { key = "k" .. #task.questions + 1, method = method, params = params, done = done }
    flush(task)
  end
  return setmetatable(y, { __index = x })
end

--- Makes a task of a call, if it becomes one. True if it does.
function tasks.begin(x, reply, handler)
  local server = x.server
  if not server.with_tasks then return false end
  local able = x.meta["io.modelcontextprotocol/clientCapabilities"]
  local is_able = type(able) == "table" and type(able.extensions) == "table" and able.extensions[EXTENSION]
  local wanted = x.params.task
  if x.modern and not (is_able and x.tool:find "^task") or not x.modern and (x.revision ~= "2025-11-25" or not wanted) then return false end
  local task = {
    id = ("upstream-task-%d"):format(#server.tasks + 1), status = "working", poll = server.task_poll or 20, questions = {}, waiters = {},
    ttl = server.task_ttl or wanted and math.tointeger(wanted.ttl) or nil, session = x.session, server = server,
  }
  table.insert(server.tasks, task)
  server.tasks[task.id] = task
  local members = shown(x, task)
  if x.modern then
    reply('{"resultType":"task",' .. members .. "}")
  else
    reply('{"task":{' .. members .. "}}")
  end
  local y = inner(x, task)
  handler(y, function(result, fault)
    if result then return y:result(result) end
    y:error(fault[1], fault[2], fault[3])
  end)
  return true
end

local function find(x, reply)
  local task = x.server.tasks[tostring(x.params.taskId)]
  if not task then reply(nil, { -32602, "Unknown task" }) end
  return task
end

tasks.methods["tasks/get"] = function(x, reply)
  local task = find(x, reply)
  if not task then return end
  if not x.modern then return reply("{" .. shown(x, task) .. "}") end
  local more = ""
  if task.status == "completed" then
    more = ',"result":' .. task.text
  elseif task.status == "failed" then
    more = (',"error":{"code":%d,"message":%s%s}'):format(task.fault[1], raw.quote(task.fault[2]), task.fault[3] and ',"data":' .. task.fault[3] or "")
  elseif task.status == "input_required" then
    local open = {}
    for _, one in ipairs(task.questions) do
      if not one.is_answered then open[#open + 1] = ('"%s":{"method":"%s","params":%s}'):format(one.key, one.method, one.params) end
    end
    more = ',"inputRequests":{' .. table.concat(open, ",") .. "}"
  end
  reply(x:complete("{" .. shown(x, task) .. more .. "}"))
end

tasks.methods["tasks/result"] = function(x, reply)
  if x.modern then return reply(nil, { -32601, "Method not found" }) end
  local task = find(x, reply)
  if not task then return end
  table.insert(task.waiters, x)
  if ended[task.status] then return deliver(task) end
  flush(task)
end

tasks.methods["tasks/update"] = function(x, reply)
  local task = find(x, reply)
  if not task then return end
  reply(x:complete "{}")
  local open = false
  for _, one in ipairs(task.questions) do
    local text = raw.at(x.text, "params", "inputResponses", one.key)
    if text and not one.is_answered then
      one.is_answered = true
      one.done({ result = cjson.decode(text) }, '{"result":' .. text .. "}")
    end
    open = open or not one.is_answered
  end
  if task.status == "input_required" and not open then task.status = "working" end
end

tasks.methods["tasks/cancel"] = function(x, reply)
  local task = find(x, reply)
  if not task then return end
  if ended[task.status] and not x.modern then return reply(nil, { -32602, "The task has ended" }) end
  finish(task, "cancelled")
  task.cancelled = true
  reply(x.modern and x:complete "{}" or "{" .. shown(x, task) .. "}")
end

return tasks
