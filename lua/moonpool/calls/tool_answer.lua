-- The answer to tools/call: what the handler of a tool returned or raised, as a result or an error.

local host = require "moonpool.host"
local arguments = require "moonpool.things.arguments"
local client_request = require "moonpool.calls.client_request"
local content = require "moonpool.things.tool_result"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local nothing = require "moonpool.things.nothing"
local problem = require "moonpool.runtime.diagnostic"
local silent = require "moonpool.things.silent"

local select, to_result = select, content.result

local tool_answer = {}

-- The line of a tool's script that contains `word`, as "scripts/tools/a.lua:3"; nil if the tool has no file.
local function place_of(tool, word)
  local text = problem.script_text(tool.path)
  if not text then return nil end
  local line = problem.find(text, word, problem.find(text, tool.name)) or problem.find(text, word)
  return host.script.root .. "/" .. tool.path .. (line and ":" .. line or "")
end

-- A handler that ends with a tail call, as in return time.parse(text), leaves no trace: then its file is the place.
local function fault(tool, value, place)
  return content.failed(failure.report(value, "tool failed", tool.name, place or tool.path and host.script.root .. "/" .. tool.path))
end

--- The result or error for a handler that needs capabilities which the client lacks.
function tool_answer.lacking(era, value)
  if era.missing_capability == "result" then return content.failed(value.why) end
  return nil, errors.new("missing_capability", value.why, { requiredCapabilities = failure.lacking(value) })
end

--- The result or error for arguments that do not fit: `why` is the failure of their check.
function tool_answer.invalid(tool, era, call, args, why)
  local shown = arguments.explain(tool.input, args, why, call)
  if era.invalid_arguments == "error" then return nil, errors.new("invalid_params", shown) end
  return content.failed(shown)
end

--- Makes the result of tools/call from the values of xpcall(handler): a result in the base revision, or nil and an
--- error.
function tool_answer.answer(tool, era, call, params, ok, ...)
  local value, why = ...
  if not ok then
    if failure.is_input(value) then return client_request.result(call, value, params) end
    if failure.is_expected(value) then return content.failed(value.why) end
    if failure.is_refused(value) then return nil, failure.refusal(value) end
    if failure.is_missing(value) then return tool_answer.lacking(era, value) end
    return fault(tool, value)
  end
  if value == nil then
    if select("#", ...) == 0 and not tool.output then
      silent.warn(tool, "tool returned nothing", { name = tool.name }, "its clients get an empty result: return a string, as in return \"done\"")
      return content.nothing()
    end
    return content.failed(failure.words(why, "the tool returned neither a result nor a reason"))
  end
  if content.is_forwarded(value) then return value end
  local output = tool.output
  if output then
    local fits, wrong = output(value)
    if not fits then
      value = nothing.lists(value, tool.definition.outputSchema)
      fits, wrong = output(value)
    end
    if not fits then
      local place = (wrong.path or "") == "" and "" or wrong.path .. " "
      return fault(tool, "the result does not fit 'output': " .. place .. wrong.message, place_of(tool, "output"))
    end
  end
  local result, wrong = to_result(value, output)
  if not result then return fault(tool, wrong) end
  if not output and content.is_like_sdk(value) then
    silent.warn(tool, "tool returned a result of an SDK's form", { name = tool.name },
      "it is sent as data: return the text itself, or a list of text(…), image(…) and link(…); fail \"…\" is an error")
  end
  return result
end

return tool_answer
