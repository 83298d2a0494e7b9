-- The members of a record's line that have secrets taken out: of a call that is recorded, and of its replay, so that
-- both can be compared.

local json = require "moonpool.json"

local redact = require "moonpool.runtime.redact"
local secret_schema = require "moonpool.runtime.secret_schema"

local line = {}

-- True for an entry of the store that is secret by its key.
local function is_secret_entry(kind, args) return kind:find "^store" and type(args.key) == "string" and redact.is_secret(args.key) end

-- The arguments of outside_hooks.through, without secrets: what a script passed to a library.
local function arguments_of(hide, kind, args)
  local made = {}
  for name, part in pairs(args) do
    if kind == "http" and name == "headers" or kind == "exec" and name == "env" then
      made[name] = json.array {}
      for i, text in ipairs(part) do
        if type(text) == "string" and kind == "exec" then text = text:gsub("=", ": ", 1) end
        made[name][i] = type(text) == "string" and hide:line(text, kind) or text
      end
    elseif kind == "exec" and name == "argv" then
      made[name] = hide:words(part, "exec")
    elseif kind:find "^store" and type(part) == "table" and part[1] ~= nil then
      made[name] = hide:value(part, nil, kind .. "." .. tostring(args.key))
    else
      made[name] = hide:value(part, nil, kind .. "." .. name)
    end
  end
  if args.values and is_secret_entry(kind, args) then
    hide:hide(args.values)
    hide:note(kind .. "." .. args.key)
    made.values = json.array { "***" }
  end
  return made
end

-- The results of a recorded use, without secrets.
local function results_of(hide, kind, args, results)
  if is_secret_entry(kind, args) then
    local first = results[1]
    if type(first) ~= "string" then return results end
    hide:hide(first)
    hide:note(kind .. "." .. args.key)
    return json.array { "\"***\"" }
  end
  local made = json.array {}
  for i, part in ipairs(results) do
    if kind == "http" and i == 2 and type(part) == "string" then
      local lines = {}
      for text in part:gmatch "[^\r\n]+" do lines[#lines + 1] = hide:line(text, "http.answer") end
      made[i] = table.concat(lines, "\n")
    else
      made[i] = hide:value(part, nil, kind .. ".answer")
    end
  end
  return made
end

--- One event without its secrets.
function line.event(hide, event)
  local kind, args, results = event.kind, event.args, event.results
  return { kind = kind, task = event.task, args = arguments_of(hide, kind, args), results = results and results_of(hide, kind, args, results) }
end

-- A result without secrets: those of its content, and of its structured content by the tool's output schema.
local function result_of(hide, schema, given)
  local structured = given.structuredContent
  local shown = type(structured) == "table" and hide:value(structured, secret_schema.of(schema), "result.structuredContent") or nil
  local made = hide:value(given, nil, "result")
  if shown then made.structuredContent = shown end
  return made
end

--- All parts of a call without secrets: twice, if the second time there is more to hide than at the beginning of the
--- first. `tool`: the tool that it calls, for its schemas; or nil.
function line.without_secrets(hide, tool, given)
  local made
  local input = secret_schema.of(tool and tool.input)
  for _ = 1, 2 do
    local known = #hide.values
    made = { arguments = hide:value(given.arguments, input, "arguments"), events = json.array {} }
    for i, event in ipairs(given.events) do made.events[i] = line.event(hide, event) end
    made.result = given.result and result_of(hide, tool and tool.definition and tool.definition.outputSchema, given.result)
    made.error = given.error and hide:value(given.error, nil, "error")
    made.principal = type(given.principal) == "table" and hide:value(given.principal, nil, "principal") or given.principal
    made.variables = given.variables and hide:value(given.variables, nil, "env")
    if #hide.values == known then break end
  end
  return made
end

--- The word for how a call ended.
function line.outcome(result, err)
  if err or not result then return "error" end
  if result.resultType == "input_required" then return "asked" end
  return result.isError and "failed" or "ok"
end

return line
