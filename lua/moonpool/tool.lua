-- tool { … }: its options checked, its schemas compiled, its entry in tools/list made.

local annotated = require "moonpool.annotated"
local arguments = require "moonpool.arguments"
local call = require "moonpool.call"
local json = require "moonpool.json"
local mirror = require "moonpool.mirror"
local schema = require "moonpool.schema"
local suggest = require "moonpool.suggest"
local types = require "moonpool.types"

local tool = {}

local written = { __name = "moonpool.tool", __metatable = false }

--- What scripts call. Nothing is judged yet: the file and the name are not known here.
function tool.new(spec) return setmetatable({ spec = spec }, written) end

function tool.is_tool(value) return debug.getmetatable(value) == written end

local options = {
  input = "table", output = "table", title = "string", timeout = "number", requires = "table", icons = "table", open = "boolean",
  read_only = "boolean", destructive = "boolean", idempotent = "boolean", open_world = "boolean", scopes = "table",
}
local option_names = { "input", "output", "title", "timeout", "requires", "icons", "read_only", "destructive", "idempotent", "open_world", "open" }

local hints = { read_only = "readOnlyHint", destructive = "destructiveHint", idempotent = "idempotentHint", open_world = "openWorldHint" }

local definition_order = { __order = { "name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons" } }

-- A type object, or a table of named ones, as a schema.
local function schema_of(value, option, spec, complain)
  if types.is_type(value) then return types.schema(value) end
  local fine = true
  for name, field in pairs(value) do
    if type(name) ~= "string" or not types.is_type(field) then
      fine = false
      local told = tostring(name)
      complain(type(name) == "string" and name or option, option .. ": '" .. told .. "' is not a type", "as in " .. option .. " = { " ..
        (type(name) == "string" and name or "name") .. " = t.string }")
    end
  end
  return fine and types.fields(value, option == "output" or spec.open) or { type = "object" }
end

-- The options of tool { … } as { description, input, output, handler }.
local function read(spec, complain)
  if type(spec) ~= "table" then
    complain("tool", "tool needs a table", "as in tool { \"What it does.\", function(args) … end }")
    return nil
  end
  for name, value in pairs(spec) do
    if name == 1 or name == 2 then
      local want = name == 1 and "string" or "function"
      if type(value) ~= want then
        complain("tool", name == 1 and "a tool begins with its description" or "a tool's handler comes after its description",
          "as in tool { \"What it does.\", function(args) … end }")
      end
    elseif not options[name] then
      complain(tostring(name), "tool has no option '" .. tostring(name) .. "'",
        (suggest.hint(name, option_names) or "") .. " options are " .. table.concat(option_names, ", "))
    elseif type(value) ~= options[name] then
      complain(name, "'" .. name .. "' must be a " .. options[name] .. ", got a " .. type(value))
    end
  end
  if spec[1] == nil or spec[1] == "" then complain("tool", "the tool has no description", "its first item, as in tool { \"What it does.\", … }") end
  if spec[2] == nil then complain("tool", "the tool has no handler", "a function(args, call) after the description") end
  if spec.scopes then complain("scopes", "'scopes' needs auth, which this version does not serve", "leave it out, and the tool is open to every client") end
  if type(spec.timeout) == "number" and not (spec.timeout > 0 and spec.timeout <= 86400) then
    complain("timeout", "'timeout' must be above 0 and at most a day", "as in timeout = 30 * seconds")
  end
  if type(spec.requires) == "table" then
    for i, name in ipairs(spec.requires) do
      if type(name) ~= "string" or name == "" then complain("requires", "'requires' item " .. i .. " is not a name", "as in requires = { \"sampling\" }") end
    end
  end
  return {
    description = spec[1], handler = spec[2],
    input = type(spec.input) == "table" and schema_of(spec.input, "input", spec, complain) or types.fields({}, spec.open),
    output = type(spec.output) == "table" and schema_of(spec.output, "output", spec, complain) or nil,
  }
end

local function compile(word, written_schema, complain)
  local ok, check, why = pcall(schema.compile, written_schema)
  if ok and check then return check end
  why = ok and why or check
  if type(why) == "table" then why = (why.path and why.path ~= "" and why.path .. ": " or "") .. tostring(why.message) end
  complain(word, "the " .. word .. " schema is not usable: " .. tostring(why))
end

--- A tool ready to be called, from what a file returned. `complain(word or line, what, hint)` hears of every problem.
function tool.build(name, value, text, complain)
  local spec, read_spec = {}
  if type(value) == "function" then
    read_spec = annotated.read(value, text, complain)
  else
    spec = value.spec
    read_spec = read(spec, complain)
    if not read_spec then return nil end
  end
  local input, output = read_spec.input, read_spec.output
  if input.type ~= "object" then complain("input", "the input of a tool must be an object", "as in input = { name = t.string }") end

  local hinted
  for option, hint in pairs(hints) do
    if spec[option] ~= nil then
      hinted = hinted or {}
      hinted[hint] = spec[option]
    end
  end
  return {
    name = name,
    description = read_spec.description,
    handler = read_spec.handler,
    input = input,
    check = compile("input", input, complain),
    output = output and compile("output", output, complain),
    defaults = arguments.defaults(input),
    mirror = mirror.rows(input, function(what, hint) complain("header", what, hint) end),
    timeout = spec.timeout,
    requires = spec.requires,
    required_tree = type(spec.requires) == "table" and #spec.requires > 0 and call.tree(spec.requires) or nil,
    definition = setmetatable({
      name = name, title = spec.title, description = read_spec.description, inputSchema = input, outputSchema = output,
      annotations = hinted, icons = spec.icons and json.array(spec.icons),
    }, definition_order),
  }
end

return tool
