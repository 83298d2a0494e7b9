-- The methods of MCP tasks: tasks/get, tasks/cancel; tasks/update of stateless revisions (TX); tasks/result and
-- tasks/list of 2025-11-25 (TA).

local host = require "moonpool.host"
local call_library = require "moonpool.protocol.call"
local content = require "moonpool.things.tool_result"
local errors = require "moonpool.runtime.rpc_error"
local json = require "moonpool.json"
local page = require "moonpool.protocol.cursor"
local principal = require "moonpool.access.principal"
local registry = require "moonpool.registry.registry"
local sorted = require "moonpool.runtime.sorted_keys"
local task_record = require "moonpool.tasks.task_record"
local tasks = require "moonpool.tasks.tasks"

local methods = {}

local MESSAGE_TIMEOUT_S = 5                          -- seconds to wait until the worker that runs a task has done what a message says
local related = "io.modelcontextprotocol/related-task"

-- The error for a call that may not use any method of tasks, or nil. A task that there is (`record`) outlasts the tools
-- that can be tasks.
local function refusal(call, era, record)
  if not (record or registry.offers "tasks") then return errors.new("unknown_method", "this server has no tasks") end
  -- clients have to declare the extension (TX-6)
  if era.tasks == "extension" and not call_library.able(call, task_record.needs) then return task_record.undeclared() end
end

-- The error for a task that is unknown, expired or of another principal: the same for all three (TA-5, TA-6).
local function unknown() return errors.new("invalid_params", "unknown task") end

-- The record of the task params.taskId; or nil and an error.
local function find(call, params, era)
  local record, away = task_record.find(call, params.taskId)
  local refused = refusal(call, era, record)
  if refused then return nil, refused end
  if away then return nil, task_record.away() end
  if not record then return nil, unknown() end
  if task_record.is_ended(record) then host.session.unsubscribe(call, "task:" .. record.id) end -- no further notification about this task follows: it has ended
  return record
end

-- The record of a task as a result.
local function show_record(record, era)
  if era.tasks == "params" then return task_record.legacy(record), nil, true end
  local result = task_record.modern(record, true)
  result.resultType, result._meta = "complete", content.meta
  return result
end

local function done() return { resultType = "complete", _meta = content.meta } end

methods["tasks/get"] = function(call, params, era)
  local record, err = find(call, params, era)
  if not record then return nil, err end
  return show_record(record, era)
end

methods["tasks/cancel"] = function(call, params, era)
  local record, err = find(call, params, era)
  if not record then return nil, err end
  if task_record.is_ended(record) then
    if era.tasks == "extension" then return done() end                                 -- a task that has ended may be cancelled, too (TX-5)
    -- a task that has ended cannot be cancelled (TA-3)
    return nil, errors.new("invalid_params", "the task has ended: it is " .. task_record.legacy(record).status)
  end
  local refused = tasks.send { id = record.id, cancel = true }
  if refused then return nil, refused end
  local cancelled = tasks.await(call, record.id, MESSAGE_TIMEOUT_S, function(now) return task_record.is_ended(now) and now or nil end)
  if era.tasks == "extension" then return done() end
  if not cancelled then return nil, errors.new("internal", "the task is being cancelled and has not ended yet: ask again with tasks/get") end
  return show_record(cancelled, era)
end

-- tasks/update: delivers answers to the open questions of a task. Answers to other keys are ignored (TX-4).
methods["tasks/update"] = function(call, params, era)
  local record, err = find(call, params, era)
  if not record then return nil, err end
  local responses = params.inputResponses
  if type(responses) ~= "table" or debug.getmetatable(responses) == json.array_mt then
    return nil, errors.new("invalid_params", "params.inputResponses must be an object")
  end
  local answers = {}
  for key in pairs(record.requests) do
    if type(responses[key]) == "table" then answers[key] = { answer = responses[key] } end
  end
  if next(answers) == nil then return done() end
  local refused = tasks.send { id = record.id, answers = answers }
  if refused then return nil, refused end
  tasks.await(call, record.id, MESSAGE_TIMEOUT_S, function(now)              -- waits until the record shows that the answers arrived
    for key in pairs(answers) do
      if now.requests[key] then return nil end
    end
    return true
  end)
  return done()
end

-- -- 2025-11-25 ----------------------------------------------------------------------------------------------------------

-- tasks/result sends the open questions of a task on its own stream, one after the other (TA-4). A question that was
-- answered elsewhere, or is no longer open, is withdrawn.
local asker = {}
asker.__index = asker

local function new_asker(call, id) return setmetatable({ call = call, id = id, asked = {} }, asker) end

-- The first open question, in the order of keys, that this request has not sent yet.
function asker:next(record)
  for _, key in ipairs(sorted(record.requests)) do
    if not self.asked[key] then return key end
  end
end

function asker:ask(record, key)
  local request, params = record.requests[key], {}
  for name, value in pairs(request.params) do params[name] = value end
  params._meta = { [related] = { taskId = self.id } }
  self.asked[key], self.open = true, key
  local answer, refused = host.call.ask(self.call, request.method, params)
  if answer == false or self.open ~= key then return end
  self.open = nil
  local said = answer and { answer = answer } or { refused = refused.message or "refused" }
  -- if the answer could not be sent to the task's worker, the question stays unanswered and is asked again
  if tasks.send { id = self.id, answers = { [key] = said } } then self.asked[key] = nil end
end

-- Called when the record has changed. Withdraws the question that is in flight, if it is no longer open.
function asker:on_change(known)
  local record, away = known, nil
  if not known then record, away = task_record.find(self.call, self.id) end
  if not self.open or away or record and record.requests[self.open] then return end
  self.open = nil
  host.call.withdraw(self.call)
end

-- Sends open questions until there are none. Returns the record when the task has ended; nil while it runs.
function asker:look(record)
  while record and not task_record.is_ended(record) do
    local key = self:next(record)
    if not key then return nil end
    self:ask(record, key)
    record = task_record.find(self.call, self.id)
  end
  return record
end

local function outcome(record, era)
  if record.status == "cancelled" then return nil, errors.new("invalid_request", "the task was cancelled") end
  local result = json.decode(record.outcome)
  if record.status == "failed" or record.is_too_large then return nil, result end
  local convert = era.methods["tools/call"].convert_result
  if convert then convert(result) end
  result._meta = result._meta or {}
  result._meta[related] = { taskId = record.id }
  return result, nil, true
end

methods["tasks/result"] = function(call, params, era)
  local record, err = find(call, params, era)
  if not record then return nil, err end
  host.call.clear_deadline(call)
  local it = new_asker(call, record.id)
  local ended = tasks.await(call, record.id, nil, function(now) return it:look(now) end, function(known) it:on_change(known) end)
  if not ended then return nil, unknown() end
  return outcome(ended, era)
end

methods["tasks/list"] = function(call, params, era)
  local refused = refusal(call, era)
  if refused then return nil, refused end
  if not principal.is_named(call.principal) then return nil, errors.new("unknown_method", "tasks/list needs an authenticated caller") end
  local ids, away = task_record.ids(call)
  if away then return nil, task_record.away() end
  local first = 1
  if params.cursor ~= nil and params.cursor ~= json.null then
    local last = page.open("tasks/list", params.cursor, principal.key(call.principal))
    if not last then return nil, errors.new("invalid_params", "unknown cursor") end
    first = page.behind(ids, last)
  end
  local result = { tasks = json.array {} }
  for i = first, math.min(first + page.size - 1, #ids) do
    local record = task_record.find(call, ids[i])
    if record then result.tasks[#result.tasks + 1] = task_record.legacy(record) end
  end
  if first + page.size <= #ids then result.nextCursor = page.cursor("tasks/list", ids[first + page.size - 1], principal.key(call.principal)) end
  return result, nil, true
end

return methods
