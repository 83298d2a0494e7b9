-- moonpool call: calls one tool.

local connect = require "moonpool.workbench.client.connect"
local format_content = require "moonpool.workbench.format.format_content"
local json = require "moonpool.json"
local stderr = require "moonpool.workbench.format.stderr"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"
local coerce = require "moonpool.workbench.format.coerce"

-- Converts the arguments of the command line by the tool's schema; or nil, what, hint.
local function read_arguments(args, schema, known)
  local found = {}
  if args.json then
    local value, why = json.decode(args.json)
    if type(value) ~= "table" or (value[1] ~= nil) then return nil, "--json needs an object: " .. (why or "not a JSON object"),
      "as in --json '{\"a\": 1}'" end
    found = value
  end
  local given = {}
  local properties = type(schema.properties) == "table" and schema.properties or {}
  for i = 2, #args do
    local name, text = args[i]:match "^([^=]+)=(.*)$"
    if not name then return nil, "'" .. args[i] .. "' is not an argument", "write KEY=VALUE, as in " .. known .. " name=Ann" end
    if properties[name] == nil and schema.additionalProperties == false then
      return nil, "'" .. known .. "' has no argument '" .. name .. "'", suggest.hint(name, properties)
        or next(properties) and "its arguments are " .. table.concat(sorted(properties), ", ") or "it takes no arguments"
    end
    if given[name] then return nil, "'" .. name .. "' is given twice", "a list is JSON, as in " .. name .. "='[1, 2]'" end
    given[name] = true
    local value, why = coerce.read(text, properties[name] or {})
    if value == nil then return nil, name .. ": " .. why end
    found[name] = value
  end
  return found
end

-- -- the result --------------------------------------------------------------------------------------------------------

local function show(result)
  local to = result.isError and io.stderr or io.stdout
  if result.structuredContent ~= nil and not result.isError and #(result.content or {}) == 0 then
    to:write(json.encode(result.structuredContent), "\n")
  end
  for _, item in ipairs(result.content or {}) do
    local text = format_content.text(item)
    to:write(text, text:sub(-1) == "\n" and "" or "\n")
  end
  if result.task then to:write("[task ", result.task.taskId or "", "]\n") end
end

-- -- the call ----------------------------------------------------------------------------------------------------------

local function run(s, tools, args)
  local name = args[1]
  local tool = tools[name]
  if not tool then return stderr.misuse("there is no tool '" .. name .. "'", suggest.hint(name, tools) or "moonpool list shows them") end
  local arguments, what, hint = read_arguments(args, tool.inputSchema, name)
  if not arguments then return stderr.misuse(what, hint) end
  local result, wrong = s:call(name, arguments)
  local code = connect.print(args, show, result, wrong)
  return result and result.isError and 1 or code
end

return function(args)
  if not args[1] then return stderr.misuse("call takes the name of a tool", "as in moonpool call greet name=Ann; moonpool list shows them") end
  return connect.run(args, function(s) return s:list() end, function(s, tools) return run(s, tools, args) end)
end
