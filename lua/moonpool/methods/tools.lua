-- tools/list and tools/call.

local host = require "moonpool.host"
local arguments = require "moonpool.arguments"
local asking = require "moonpool.asking"
local call_library = require "moonpool.call"
local content = require "moonpool.content"
local errors = require "moonpool.errors"
local failure = require "moonpool.failure"
local json = require "moonpool.json"
local mirror = require "moonpool.mirror"
local registry = require "moonpool.registry"
local suggest = require "moonpool.suggest"

local type, select, xpcall = type, select, xpcall
local getmetatable = debug.getmetatable
local array_mt, null = json.array_mt, json.null
local handler, to_result = failure.handler, content.result

local tools = {}

tools["tools/list"] = function(_, params, era)
  local bytes, err = registry.page("tools", era, params.cursor)
  return bytes, err, true
end

local function unknown(name)
  if type(name) ~= "string" then return nil, errors.new("invalid_params", "params.name must be a string") end
  local hint = suggest.hint(name, registry.names "tools")
  return nil, errors.new("invalid_params", "unknown tool '" .. name:sub(1, 128) .. "'" .. (hint and ": " .. hint or ""))
end

local function invalid(tool, era, args, why)
  local told = arguments.explain(tool.input, args, why)
  if era.invalid_arguments == "error" then return nil, errors.new("invalid_params", told) end
  return content.failed(told)
end

local function fault(tool, value)
  return content.failed(failure.report(value, "tool failed", tool.name))
end

local function lacking(era, value)
  if era.missing_capability == "result" then return content.failed(value.why) end
  return nil, errors.new("missing_capability", value.why, { requiredCapabilities = value.tree })
end

-- What xpcall gave, as a result.
local function answer(tool, era, call, params, ok, ...)
  local value, why = ...
  if not ok then
    if failure.is_input(value) then return asking.result(call, value, params) end
    if failure.is_expected(value) then return content.failed(value.why) end
    if failure.is_missing(value) then return lacking(era, value) end
    return fault(tool, value)
  end
  if value == nil then
    if select("#", ...) == 0 and not tool.output then return content.nothing() end
    return content.failed(failure.words(why, "the tool gave no result and no reason"))
  end
  local output = tool.output
  if output then
    local fits, wrong = output(value)
    if not fits then return fault(tool, "the result does not fit 'output': " .. (wrong.path or "") .. " " .. wrong.message) end
  end
  local result, wrong = to_result(value, output)
  if not result then return fault(tool, wrong) end
  return result
end

tools["tools/call"] = function(call, params, era)
  local tool = registry.tools[params.name]
  if not tool then return unknown(params.name) end
  local args = params.arguments
  if args == nil or args == null then
    args = {}                                                                          -- T-3
  elseif type(args) ~= "table" or getmetatable(args) == array_mt then
    return nil, errors.new("invalid_params", "params.arguments must be an object")
  end
  if tool.mirror and era.stateless then
    local wrong = mirror.check(call, tool.mirror, args)
    if wrong then return nil, wrong end
  end
  local fits, why = tool.check(args)
  if not fits then return invalid(tool, era, args, why) end
  if tool.defaults then arguments.fill(tool.defaults, args) end
  if tool.required_tree then
    local able, value = pcall(call_library.demand, call, tool.required_tree, tool.requires)
    if not able then return lacking(era, value) end
  end
  if tool.timeout then host.deadline(call, tool.timeout) end
  if era.stateless and asking.is_retry(params) then
    local wrong = asking.begin(call, params)
    if wrong then return nil, wrong end
  end
  return answer(tool, era, call, params, xpcall(tool.handler, handler, args, call))
end

return tools
