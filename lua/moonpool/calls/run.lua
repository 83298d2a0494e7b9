-- Runs the handler of a resource, prompt or completion. Their results have no `isError`, so each failure becomes a
-- JSON-RPC error.

local host = require "moonpool.host"
local client_request = require "moonpool.calls.client_request"
local call_library = require "moonpool.protocol.call"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"

local run = {}

local function lacking(era, value)
  if era.missing_capability == "result" then return errors.new("internal", value.why) end
  return errors.new("missing_capability", value.why, { requiredCapabilities = failure.lacking(value) })
end

-- Ends the span of a handler, and returns what xpcall(handler) has returned.
local function finished(span, ...)
  if span then host.trace.finish(span) end
  return ...
end

--- Logs a handler's error with its traceback, and returns the JSON-RPC error for the client, which has only the id of
--- the log line.
function run.fault(thing, what, value)
  return errors.new("internal", failure.report(value, what, thing.name))
end

local function answer(thing, what, era, call, params, ok, value, why)
  if ok then
    if value == nil and why ~= nil then return false, nil, errors.new("internal", failure.words(why)) end
    return true, value, why
  end
  if params and failure.is_input(value) then return false, client_request.result(call, value, params) end
  if failure.is_expected(value) then return false, nil, errors.new("internal", value.why) end
  if failure.is_refused(value) then return false, nil, failure.refusal(value) end
  if failure.is_missing(value) then return false, nil, lacking(era, value) end
  return false, nil, run.fault(thing, what, value)
end

--- Runs `handler(...)` for `thing`, which has name, timeout and requires. Returns true and the handler's value (nil is
--- possible); or false and the result and error that dispatch returns. `what` is the log event of a failure, such as
--- "prompt failed". Without `params` the handler may not ask the client anything.
function run.handler(thing, what, call, era, params, handler, ...)
  if thing.required_tree then
    local able, value = pcall(call_library.demand, call, thing.required_tree, thing.requires)
    if not able then return false, nil, lacking(era, value) end
  end
  if thing.timeout then host.call.set_deadline(call, thing.timeout) end
  if params and era.stateless and client_request.is_retry(params) then
    local wrong = client_request.begin(call, params, not thing.upstream)
    if wrong then return false, nil, wrong end
  end
  local span = not thing.has_policies and host.trace.begin "handler" or nil
  return answer(thing, what, era, call, params, finished(span, xpcall(handler, failure.handler, ...)))
end

return run
