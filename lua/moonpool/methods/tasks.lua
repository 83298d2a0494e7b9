-- tasks/get, tasks/cancel; tasks/update of 2026-07-28 (TX); tasks/result and tasks/list of 2025-11-25 (TA).

local host = require "moonpool.host"
local call_library = require "moonpool.call"
local content = require "moonpool.content"
local errors = require "moonpool.errors"
local json = require "moonpool.json"
local page = require "moonpool.page"
local principal = require "moonpool.principal"
local registry = require "moonpool.registry"
local sorted = require "moonpool.sorted"
local task_record = require "moonpool.task_record"
local tasks = require "moonpool.tasks"

local methods = {}

local PATIENCE = 5                          -- seconds for the worker that runs a task to do as it is told
local related = "io.modelcontextprotocol/related-task"

-- What refuses a method of tasks, or nil.
local function refusal(call, era)
  if not registry.offers "tasks" then return errors.new("unknown_method", "there are no tasks here") end
  if era.tasks == "extension" and not call_library.able(call, task_record.needs) then return task_record.undeclared() end      -- TX-6
end

-- Unknown, expired and foreign are one (TA-5, TA-6).
local function unknown() return errors.new("invalid_params", "unknown task") end

-- The task of params.taskId, or nil and an error.
local function find(call, params, era)
  local refused = refusal(call, era)
  if refused then return nil, refused end
  local record = task_record.find(call, params.taskId)
  if not record then return nil, unknown() end
  if task_record.is_ended(record) then host.unfollow(call, "task:" .. record.id) end     -- its session knows all there is to know
  return record
end

-- A task as the answer.
local function told(record, era)
  if era.tasks == "params" then return task_record.legacy(record), nil, true end
  local result = task_record.modern(record, true)
  result.resultType, result._meta = "complete", content.meta
  return result
end

local function done() return { resultType = "complete", _meta = content.meta } end

methods["tasks/get"] = function(call, params, era)
  local record, err = find(call, params, era)
  if not record then return nil, err end
  return told(record, era)
end

methods["tasks/cancel"] = function(call, params, era)
  local record, err = find(call, params, era)
  if not record then return nil, err end
  if task_record.is_ended(record) then
    if era.tasks == "extension" then return done() end                                 -- TX-5
    return nil, errors.new("invalid_params", "the task has ended: it is " .. task_record.legacy(record).status)           -- TA-3
  end
  tasks.order { id = record.id, cancel = true }
  local cancelled = tasks.await(call, record.id, PATIENCE, function(now) return task_record.is_ended(now) and now or nil end)
  if era.tasks == "extension" then return done() end
  if not cancelled then return nil, errors.new("internal", "the task was told to end, and has not yet") end
  return told(cancelled, era)
end

-- Only what is asked and answered; the rest is ignored (TX-4).
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
  tasks.order { id = record.id, answers = answers }
  tasks.await(call, record.id, PATIENCE, function(now)              -- so that the next tasks/get shows it
    for key in pairs(answers) do
      if now.requests[key] then return nil end
    end
    return true
  end)
  return done()
end

-- -- 2025-11-25 ----------------------------------------------------------------------------------------------------------

-- Asks what is open on the call's stream, one after the other (TA-4). What is answered elsewhere meanwhile, or of no use any more,
-- is asked no longer.
local asker = {}
asker.__index = asker

local function new_asker(call, id) return setmetatable({ call = call, id = id, asked = {} }, asker) end

-- The first by name of what is open and not asked here yet.
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
  local answer, refused = host.ask(self.call, request.method, params)
  if answer == false or self.open ~= key then return end
  self.open = nil
  local said = answer and { answer = answer } or { refused = refused.message or "refused" }
  tasks.order { id = self.id, answers = { [key] = said } }
end

-- The record has changed while a question may be under way.
function asker:hear()
  local record = task_record.find(self.call, self.id)
  if not self.open or record and record.requests[self.open] then return end
  self.open = nil
  host.withdraw(self.call)
end

-- What ended; nil while it goes on.
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
  if record.status == "failed" then return nil, result end
  local down = era.methods["tools/call"].down
  if down then down(result) end
  result._meta = result._meta or {}
  result._meta[related] = { taskId = record.id }
  return result, nil, true
end

methods["tasks/result"] = function(call, params, era)
  local record, err = find(call, params, era)
  if not record then return nil, err end
  host.unhurried(call)
  local it = new_asker(call, record.id)
  local ended = tasks.await(call, record.id, nil, function(now) return it:look(now) end, function() it:hear() end)
  if not ended then return nil, unknown() end
  return outcome(ended, era)
end

methods["tasks/list"] = function(call, params, era)
  local refused = refusal(call, era)
  if refused then return nil, refused end
  if not principal.is_named(call.principal) then return nil, errors.new("unknown_method", "tasks are listed only for those who say who they are") end
  local ids, first = task_record.ids(call), 1
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
