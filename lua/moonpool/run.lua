-- Runs a handler of what has no `isError` to fail with: a resource, a prompt, a completion. Its failures are errors.

local host = require "moonpool.host"
local asking = require "moonpool.asking"
local call_library = require "moonpool.call"
local errors = require "moonpool.errors"
local failure = require "moonpool.failure"

local run = {}

local function lacking(era, value)
  if era.missing_capability == "result" then return errors.new("internal", value.why) end
  return errors.new("missing_capability", value.why, { requiredCapabilities = value.tree })
end

--- The answer to a handler's bug: logged whole, told as an id.
function run.fault(thing, what, value)
  return errors.new("internal", failure.report(value, what, thing.name))
end

local function answer(thing, what, era, call, params, ok, value, why)
  if ok then
    if value == nil and why ~= nil then return false, nil, errors.new("internal", failure.words(why)) end
    return true, value, why
  end
  if params and failure.is_input(value) then return false, asking.result(call, value, params) end
  if failure.is_expected(value) then return false, nil, errors.new("internal", value.why) end
  if failure.is_refused(value) then return false, nil, value.error end
  if failure.is_missing(value) then return false, nil, lacking(era, value) end
  return false, nil, run.fault(thing, what, value)
end

--- Runs `handler(...)` for `thing`, which has name, timeout, requires. Gives true and its value, nil among them; or false and
--- what dispatch is to answer. `what` is the event of a fault: "prompt failed"; without `params` it may ask the client nothing.
function run.handler(thing, what, call, era, params, handler, ...)
  if thing.required_tree then
    local able, value = pcall(call_library.demand, call, thing.required_tree, thing.requires)
    if not able then return false, nil, lacking(era, value) end
  end
  if thing.timeout then host.deadline(call, thing.timeout) end
  if params and era.stateless and asking.is_retry(params) then
    local wrong = asking.begin(call, params)
    if wrong then return false, nil, wrong end
  end
  return answer(thing, what, era, call, params, xpcall(handler, failure.handler, ...))
end

return run
