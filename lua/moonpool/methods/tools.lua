-- tools/list and tools/call.

local host = require "moonpool.host"
local access = require "moonpool.access.access"
local arguments = require "moonpool.things.arguments"
local client_request = require "moonpool.calls.client_request"
local call_library = require "moonpool.protocol.call"
local content = require "moonpool.things.tool_result"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local json = require "moonpool.json"
local lazy = require "moonpool.runtime.lazy"
local nothing = require "moonpool.things.nothing"
local param_headers = require "moonpool.protocol.param_headers"
local registry = require "moonpool.registry.registry"
local task_record = require "moonpool.tasks.task_record"
local tasks = require "moonpool.tasks.tasks"
local tool_answer = require "moonpool.calls.tool_answer"
local upstream_tasks = lazy "moonpool.upstream.tasks"

local type, xpcall = type, xpcall
local getmetatable = debug.getmetatable
local array_mt, null = json.array_mt, json.null
local handler = failure.handler
local answer, invalid, lacking = tool_answer.answer, tool_answer.invalid, tool_answer.lacking

local tools = {}

tools["tools/list"] = function(call, params, era)
  local bytes, err = registry.page("tools", era, params.cursor, call)
  return bytes, err, true
end

-- Ends the span of a handler, and returns what xpcall(handler) has returned.
local function finished(span, ...)
  if span then host.trace.finish(span) end
  return ...
end

-- -- tasks ---------------------------------------------------------------------------------------------------------------

-- True if this call becomes an MCP task, false if it does not; or nil and an error.
local function becomes_task(tool, era, call, asked)
  if not era.tasks then return false end
  if era.tasks == "extension" then                                                     -- the server alone decides whether the call becomes a task (TX-1)
    if tool.task and call_library.able(call, task_record.needs) then return true end
    if tool.task ~= "required" or tool.upstream then return false end      -- the gateway polls the upstream for this client
    return nil, task_record.undeclared("'" .. tool.name .. "' runs only as a task: declare " .. registry.tasks_extension)
  end
  -- without `task` in the params, or without the capability, the call is not a task (TA-1)
  if asked == nil or not registry.offers "tasks" then
    if tool.task ~= "required" then return false end
    return nil, errors.new("unknown_method", "'" .. tool.name .. "' runs only as a task: send params.task")
  end
  if type(asked) ~= "table" or (asked.ttl ~= nil and asked.ttl ~= null and (type(asked.ttl) ~= "number" or asked.ttl < 0)) then
    return nil, errors.new("invalid_params", "params.task must be { ttl } with a number of milliseconds")
  end
  -- a task of a tool that never runs as one is refused (TA-5)
  if not tool.task then return nil, errors.new("unknown_method", "'" .. tool.name .. "' does not run as a task") end
  return true
end

-- The result of the call that created a task: its record with the status "working", even if the task has ended
-- meanwhile (TA-2).
local function created(era, record)
  local is_legacy = era.tasks == "params"
  local shown = (is_legacy and task_record.legacy or task_record.modern)(record)
  shown.status = "working"
  if is_legacy then return { task = shown }, nil, true end
  shown.resultType, shown._meta = "task", content.meta
  return shown
end

-- The result of a call that asked for a task and failed before the task started. In 2025-11-25 it is a task that has
-- ended already.
local function instead(tool, era, call, params, result, err)
  if not result or era.tasks ~= "params" then return result, err end
  local record, why = tasks.ended(call, tool, params.task.ttl, result)
  if not record then return nil, why end
  return created(era, record)
end

local function start(tool, era, call, params, args)
  local record, err = tasks.start(call, tool, era.tasks == "params" and params.task.ttl or nil, function(job_call)
    return answer(tool, era, job_call, params, xpcall(tool.handler, handler, args, job_call))
  end)
  if not record then return nil, err end
  return created(era, record)
end

-- Continues the call of an upstream's tool as a task of this gateway: `made` is the task that the upstream has made of
-- it.
local function start_made(tool, era, call, params, args, made)
  local function abandon() upstream_tasks.cancel(made) end
  local has_begun = false
  local _ <close> = setmetatable({}, { __close = function()
    if not has_begun then abandon() end
  end })
  local record, err = tasks.start(call, { name = tool.name, poll = made.poll, abandon = abandon }, made.ttl, function(job_call)
    local _ <close> = upstream_tasks.resume(job_call, made)
    return answer(tool, era, job_call, params, xpcall(tool.handler, handler, args, job_call))
  end)
  if not record then return nil, err end
  has_begun = true
  return created(era, record)
end

-- Runs the handler of an upstream's tool for a client that can have a task; `is_asked`: it has asked for one.
local function run_wishing(tool, era, call, params, args, is_asked)
  upstream_tasks.wish(call, is_asked and era.tasks == "params" and params.task.ttl or nil)
  local function over(ok, ...)
    if not ok and failure.is_task((...)) then return start_made(tool, era, call, params, args, failure.task((...))) end
    if is_asked then return instead(tool, era, call, params, answer(tool, era, call, params, ok, ...)) end
    return answer(tool, era, call, params, ok, ...)
  end
  return over(xpcall(tool.handler, handler, args, call))
end

local function prepare(tool, args, call)
  local made, why = tool.prepare(args, call)
  if made == nil and why ~= nil then failure.fail(why) end
  return made == nil and args or made
end

tools["tools/call"] = function(call, params, era)
  local tool, forbidden = access.find(call, registry.thing("tools", params.name))
  if forbidden then return nil, forbidden end
  if not tool then return registry.unknown("tools", call, params.name) end
  tool.metrics = tool.metrics or host.metrics.tool(tool.name)
  host.call.measure(call, tool.metrics)
  local is_task = false
  if tool.task or params.task ~= nil then
    local becomes, refused = becomes_task(tool, era, call, params.task)
    if becomes == nil then return nil, refused end
    is_task = becomes
  end
  local args = params.arguments
  if tool.upstream and call.method == "tools/call" then                                -- the upstream gets the client's own bytes
    local text = host.call.params(call, true)
    local whole = text and json.preserving(text)
    if whole then args = whole.arguments end
  end
  if args == nil or args == null then
    args = {}                                                                          -- missing arguments are an empty object (T-3)
  elseif type(args) ~= "table" or getmetatable(args) == array_mt then
    return nil, errors.new("invalid_params", "params.arguments must be an object")
  end
  if tool.mirror and era.stateless then
    local wrong = param_headers.check(call, tool.mirror, args)
    if wrong then return nil, wrong end
  end
  local fits, why = tool.check(args)
  if not fits and not tool.upstream and nothing.drop_nulls(args, tool.input) then fits, why = tool.check(args) end
  if not fits then
    if is_task then return instead(tool, era, call, params, invalid(tool, era, call, args, why)) end
    return invalid(tool, era, call, args, why)
  end
  if tool.defaults then arguments.fill(tool.defaults, args) end
  if tool.required_tree then
    local able, value = pcall(call_library.demand, call, tool.required_tree, tool.requires)
    if not able then
      if is_task then return instead(tool, era, call, params, lacking(era, value)) end
      return lacking(era, value)
    end
  end
  if tool.timeout and not is_task then host.call.set_deadline(call, tool.timeout) end
  if era.stateless and client_request.is_retry(params) then
    local hints = not tool.upstream and tool.definition.annotations
    local wrong = client_request.begin(call, params, type(hints) == "table" and hints.readOnlyHint == true)
    if wrong then return nil, wrong end
  end
  if tool.prepare then
    local ok, value = xpcall(prepare, handler, tool, args, call)
    if not ok and is_task then return instead(tool, era, call, params, answer(tool, era, call, params, false, value)) end
    if not ok then return answer(tool, era, call, params, false, value) end
    args = value
  end
  if tool.upstream and (is_task or era.tasks == "extension" and call_library.able(call, task_record.needs)) then
    return run_wishing(tool, era, call, params, args, is_task)
  end
  if is_task then return start(tool, era, call, params, args) end
  local span = not tool.has_policies and host.trace.begin "handler" or nil
  return answer(tool, era, call, params, finished(span, xpcall(tool.handler, handler, args, call)))
end

return tools
