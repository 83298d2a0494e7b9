-- completion/complete: values for an argument of a prompt, or for a variable of a resource template.

local access = require "moonpool.access.access"
local complete = require "moonpool.protocol.complete"
local content = require "moonpool.things.tool_result"
local errors = require "moonpool.runtime.rpc_error"
local registry = require "moonpool.registry.registry"
local run = require "moonpool.calls.run"
local suggest = require "moonpool.runtime.suggest"
local uris = require "moonpool.runtime.uris"

local function invalid(message) return nil, errors.new("invalid_params", message) end

-- The name in a reference, cut to a length that fits an error message; nil if the name is not a string.
local function shown(name) return type(name) == "string" and "'" .. name:sub(1, 128) .. "'" or "without a name" end

-- For each kind of reference: a function that finds the thing, a function that returns its arguments, and the error
-- text for an unknown thing.
local kinds = {
  ["ref/prompt"] = {
    find = function(ref) return registry.thing("prompts", ref.name) end,
    has = function(prompt) return prompt.input.properties or {} end,
    unknown = function(call, ref)
      return suggest.with_hint("unknown prompt " .. shown(ref.name), ref.name, registry.names("prompts", call.principal))
    end,
  },
  ["ref/resource"] = {
    find = function(ref)
      local uri = type(ref.uri) == "string" and uris.normal(ref.uri, true)
      return registry.thing("templates", uri) or registry.thing("resources", uri)
    end,
    has = function(resource) return resource.template and resource.template.has or {} end,
    unknown = function(_, ref) return "unknown resource template " .. shown(ref.uri) end,
  },
}

local function answer(thing, list, total)
  local completion, wrong = complete.result(list, total)
  if not completion then return nil, run.fault(thing, "completion failed", wrong) end
  return { completion = completion, resultType = "complete", _meta = content.meta }
end

return {
  ["completion/complete"] = function(call, params, era)
    if not registry.offers "completions" then return nil, errors.new("unknown_method", "this server has no completions") end
    local ref, argument = params.ref, params.argument
    local kind = type(ref) == "table" and kinds[ref.type]
    if not kind then return invalid "params.ref must be { type: \"ref/prompt\", name } or { type: \"ref/resource\", uri }" end
    if type(argument) ~= "table" or type(argument.name) ~= "string" or type(argument.value) ~= "string" then
      return invalid "params.argument must be { name, value }, both strings"
    end
    local thing, forbidden = access.find(call, kind.find(ref))
    if forbidden then return nil, forbidden end
    if not thing then return invalid(kind.unknown(call, ref)) end
    if thing.upstream then
      local context = era.has_completion_context and type(params.context) == "table" and params.context or nil
      if not thing.forward_complete then return answer(thing, {}) end
      local done, value, err = run.handler(thing, "completion failed", call, era, nil, thing.forward_complete, argument, context, call)
      return value, not done and err or nil
    end
    local has = kind.has(thing)
    if not has[argument.name] then
      return invalid(suggest.with_hint("'" .. thing.name .. "' has no argument '" .. argument.name:sub(1, 128) .. "'", argument.name, has))
    end
    local source = thing.complete and thing.complete[argument.name]
    if source == nil then return answer(thing, {}) end
    if type(source) == "table" then return answer(thing, complete.by_prefix(source, argument.value)) end
    local context = type(params.context) == "table" and params.context.arguments
    local given = type(context) == "table" and context or {}
    local ok, list, total = run.handler(thing, "completion failed", call, era, nil, source, argument.value, given, call)
    if not ok then return list, total end
    return answer(thing, list, total)
  end,
}
