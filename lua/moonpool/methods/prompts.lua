-- prompts/list and prompts/get.

local access = require "moonpool.access.access"
local arguments = require "moonpool.things.arguments"
local content = require "moonpool.things.tool_result"
local errors = require "moonpool.runtime.rpc_error"
local host = require "moonpool.host"
local json = require "moonpool.json"
local lazy = require "moonpool.runtime.lazy"
local prompt_library = lazy "moonpool.things.prompt"
local registry = require "moonpool.registry.registry"
local run = require "moonpool.calls.run"

local prompts = {}

local function none() return nil, errors.new("unknown_method", "this server has no prompts") end

prompts["prompts/list"] = function(call, params, era)
  if not registry.offers "prompts" then return none() end
  local bytes, err = registry.page("prompts", era, params.cursor, call)
  return bytes, err, true
end

prompts["prompts/get"] = function(call, params, era)
  if not registry.offers "prompts" then return none() end
  local prompt, forbidden = access.find(call, registry.thing("prompts", params.name))
  if forbidden then return nil, forbidden end
  if not prompt then return registry.unknown("prompts", call, params.name) end
  prompt.metrics = prompt.metrics or host.metrics.prompt(prompt.name)
  host.call.measure(call, prompt.metrics)
  local args = params.arguments
  if args == nil or args == json.null then
    args = {}
  elseif type(args) ~= "table" or debug.getmetatable(args) == json.array_mt then
    return nil, errors.new("invalid_params", "params.arguments must be an object")
  end
  local fits, why = prompt.check(args)
  -- a missing required argument (P-2)
  if not fits then return nil, errors.new("invalid_params", (arguments.explain(prompt.input, args, why, call))) end
  if prompt.defaults then arguments.fill(prompt.defaults, args) end
  local ok, value, err = run.handler(prompt, "prompt failed", call, era, params, prompt.handler, args, call)
  if not ok then return value, err end
  if content.is_forwarded(value) then return value end
  local messages, wrong = prompt_library.messages(value)
  if not messages then return nil, run.fault(prompt, "prompt failed", wrong) end
  return { description = prompt.description, messages = messages, resultType = "complete", _meta = content.meta }
end

return prompts
