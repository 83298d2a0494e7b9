-- Dispatches a request: finds the rules of its revision and its method, runs the method, and converts the result to the
-- revision.

local lazy = require "moonpool.runtime.lazy"
local access = require "moonpool.access.access"
local arguments = require "moonpool.things.arguments"
local call_library = require "moonpool.protocol.call"
local content = require "moonpool.things.tool_result"
local host = require "moonpool.host"
local era = require "moonpool.protocol.era"
local errors = require "moonpool.runtime.rpc_error"
local federated = lazy "moonpool.federation.federated"
local failure = require "moonpool.runtime.outcome"
local json = require "moonpool.json"
local nothing = require "moonpool.things.nothing"
local operator = lazy "moonpool.methods.operator"
local request = lazy "moonpool.upstream.request"
local routes = lazy "moonpool.upstream.routes"
local suggest = require "moonpool.runtime.suggest"
local tool_answer = require "moonpool.calls.tool_answer"
local upstreams = require "moonpool.upstream.config"

local dispatch = {}

host.hooks.described_principal = function(text) return operator.principal(text) end

--- Methods that belong to no revision: name -> function(call, params, row, eras). A gateway started for the workbench adds
--- some.
dispatch.special = {}

local eras = era.compose(require "moonpool.methods")
local fallback = eras[era.newest_stateful]

-- The methods whose answer depends on the lists of upstreams.
local depends_on_lists = {
  ["tools/list"] = true, ["tools/call"] = true, ["prompts/list"] = true, ["prompts/get"] = true, ["resources/list"] = true,
  ["resources/templates/list"] = true, ["resources/read"] = true, ["resources/subscribe"] = true, ["completion/complete"] = true,
}

local before_initialize = { initialize = true, ping = true }
local level_key = "io.modelcontextprotocol/logLevel"
local none = setmetatable({}, { __newindex = function() error("params of a request without any are shared", 2) end })

local function unknown(name, methods)
  return nil, errors.new("unknown_method", suggest.with_hint("unknown method '" .. name:sub(1, 128) .. "'", name, methods))
end

-- Converts the result of method `name` to the revision of `row`; for an error, reports to the transport what follows
-- for it, such as the HTTP status.
local function complete(call, row, name, result, err, converted)
  if result and converted ~= true then
    local convert = (converted and eras[converted] or row).methods[name].convert_result
    if convert then convert(result) end
  end
  if err then
    if err.retry_after then host.call.retry_after(call, err.retry_after) end
    access.challenge(call, err)
  end
  return result, err
end

--- Answers a request. Returns a result (a table, or json.raw bytes); or nil and an error. `revision` and `name` are
--- those of the call.
function dispatch.answer(call, params, revision, name)
  local row = eras[revision] or fallback
  if row.stateless then
    local meta = params and params._meta
    local level = meta and meta[level_key]
    if level ~= nil and not call_library.level(level) then                             -- an unknown log level is refused (O-3)
      return nil, errors.new("invalid_params", "_meta[\"" .. level_key .. "\"] must be one of " .. table.concat(call_library.levels, ", "))
    end
  elseif not call.initialized and not before_initialize[name] then                     -- requests before `initialize` are refused (L-5)
    return nil, errors.new("invalid_request", "the session is not initialized: send initialize first", { reason = "not_initialized" })
  end
  if access.has_private() then access.subscribe_as(call) end
  local method = row.methods[name]
  if not method and dispatch.special[name] then return dispatch.special[name](call, params, row, eras) end
  if not method and name == "moonpool/inspect" and select(2, host.call.operator(call)) then return operator.answer(params, eras) end
  if not method then return unknown(name, row.methods) end
  params = params or none
  local refusal = upstreams.has_any and depends_on_lists[name] and federated.settle(call, name, params)
  if refusal then return nil, refusal end
  if method.convert_params then method.convert_params(params) end
  return complete(call, row, name, method.run(call, params, row))
end

--- Replaces the function that runs a method, in every revision, by wrap(run). Returns a function that restores it.
function dispatch.wrap_method(name, wrap)
  local before = {}
  for _, row in pairs(eras) do
    local method = row.methods[name]
    if method and not before[method] then before[method], method.run = method.run, wrap(method.run) end
  end
  return function()
    for method, run in pairs(before) do method.run = run end
  end
end

-- -- call plans -----------------------------------------------------------------------------------------------------------

-- The params of a planned call whose handler asks its client: as the general path has them, with the default values.
local function params_of(call, tool)
  local params = host.call.params(call) or {}
  if tool.defaults and type(params.arguments) == "table" then arguments.fill(tool.defaults, params.arguments) end
  return params
end

--- Ends a tools/call whose handler was run by the tool's plan, with the values of pcall(handler): a result, or nil and
--- an error.
function dispatch.finish(tool, revision, call, ok, ...)
  local row = eras[revision]
  local params = not ok and failure.is_input((...)) and params_of(call, tool) or none
  return complete(call, row, "tools/call", tool_answer.answer(tool, row, call, params, ok, ...))
end

--- Why the arguments of a tools/call do not fit: the text for the client, and the one for the audit; nothing if they fit.
--- `args` are this function's own; `why`: the failure of their check, or nil where only C has seen that they may not fit.
local function refuse(tool, args, why)
  local fits = false
  if not why then fits, why = tool.check(args) end
  if not fits and nothing.drop_nulls(args, tool.input) then fits, why = tool.check(args) end
  if not fits then return arguments.explain(tool.input, args, why) end
end

-- Cuts the JSON `text` behind '"member":' and behind the value of that member; nil if it has no such member. The bytes
-- '"member":' are in no text of JSON, where quotes are escaped.
local function cut(text, member, value)
  local name = ('"%s":'):format(member)
  local at = text:find(name .. value, 1, true)
  if at then return text:sub(1, at + #name - 1), text:sub(at + #name + #value) end
end

-- The JSON around the values of results in a revision, cut from real results: { text = { before, after }, and for
-- structured results of objects and of other values { before the text, before the value, after } }, where "before the
-- value" is "" for results without the value; and failed = { before, after } the text of a failed result, where wrong
-- arguments give one.
local function frame_of(row)
  local method = row.methods["tools/call"]
  local function encoded(value, is_structured, failed)
    local result = failed or content.result(value, is_structured)
    if method.convert_result then method.convert_result(result) end
    return json.encode(result)
  end
  local function structured(value)
    local bytes = json.encode(value)
    local before, after = cut(encoded(value, true), "text", json.encode(bytes))
    local between, last = cut(after, "structuredContent", bytes)
    return { before, between or "", last or after }
  end
  return {
    text = { cut(encoded("x", false), "text", '"x"') }, object = structured { a = "x" }, other = structured(json.array { "x" }),
    failed = row.invalid_arguments ~= "error" and { cut(encoded(nil, nil, content.failed "x"), "text", '"x"') } or nil,
  }
end

-- The frames of all revisions. A revision that converts the params of tools/call has none: its calls have no plans.
local function frames()
  local made = {}
  for date, row in pairs(eras) do
    if not row.methods["tools/call"].convert_params then made[date] = frame_of(row) end
  end
  return made
end

--- Tells C how planned calls end. `finish_audited`: dispatch.finish for calls that have an audit line; nil without an audit.
function dispatch.set_plans(finish_audited)
  host.plan.set_ends(dispatch.finish, finish_audited, refuse, arguments.explain_some, failure.handler, frames())
end

-- -- the quick way to upstreams ---------------------------------------------------------------------------------------------

--- Lets plain calls of federated tools take the quick way. `finish`: dispatch.finish, or what ends the audit line, too.
function dispatch.set_routes(finish)
  if not upstreams.has_any then return end
  -- Continues a call that C has sent and whose first event C cannot handle: the exchange brings that event.
  local function take_over(tool, exchange, channel, call, id, revision)
    request.go_on(call, channel, exchange, id)
    local whole = json.preserving(host.call.params(call, true))
    return finish(tool, revision, call, xpcall(tool.handler, failure.handler, whole.arguments or {}, call))
  end
  local function run_policies(tool, call, revision) return finish(tool, revision, call, xpcall(tool.quick, failure.handler, nil, call)) end
  routes.begin(take_over, run_policies)
end

return dispatch
