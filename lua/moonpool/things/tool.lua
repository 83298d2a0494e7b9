-- tool { … }: checks its options, compiles its schemas, and makes its entry in tools/list.

local annotated = require "moonpool.things.short_form"
local apps = require "moonpool.protocol.apps"
local arguments = require "moonpool.things.arguments"
local frozen = require "moonpool.runtime.frozen"
local mirror = require "moonpool.protocol.param_headers"
local options = require "moonpool.things.options"
local schema = require "moonpool.schema"
local turns = require "moonpool.lib.semaphore"
local typed = require "moonpool.things.type_schema"
local types = require "moonpool.things.type_builder"

local tool = {}

local written = { name = "moonpool.things.tool", what = "a tool" }

--- The function `tool` of scripts. It checks nothing: the path and name of the file are not known here.
function tool.new(spec) return frozen.new(written, {}, { spec = spec }) end

function tool.is(value) return frozen.is(value, written) end

local kind = {
  word = "tool", handler = "function", form = "as in tool { \"What it does.\", function(args) … end }",
  own = {
    input = "table", output = "table", open = "boolean", read_only = "boolean", destructive = "boolean", idempotent = "boolean",
    open_world = "boolean", ui = "string or table", task = "string", prepare = "function", poll = "number",
    concurrency = "integer",
  },
  order = {
    "input", "output", "title", "timeout", "concurrency", "requires", "scopes", "visible", "task", "prepare", "poll",
    "enabled", "icons", "meta", "ui", "read_only",
    "destructive", "idempotent", "open_world", "open",
  },
}

local hints = { read_only = "readOnlyHint", destructive = "destructiveHint", idempotent = "idempotentHint", open_world = "openWorldHint" }

local definition_order = { __order = { "name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta" } }

-- The schema for a type object, or for a table of type objects by name.
local function schema_of(value, option, spec, complain)
  if types.is_type(value) then return typed.schema(value) end
  local fine = true
  if type(value.type) == "string" or type(value.properties) == "table" and not types.is_type(value.properties) then
    complain(option, "'" .. option .. "' is JSON Schema", "t.schema { … } takes it as it is: " .. option .. " = t.schema { type = \"object\", … }")
    return { type = "object" }
  end
  for name, field in pairs(value) do
    if type(name) == "string" and types.is_type(field) then
      if types.completion(field) then
        complain("complete", option .. ": '" .. name .. "' cannot be completed", "clients complete arguments of prompts, and values in URIs")
      end
    else
      fine = false
      local shown = tostring(name)
      complain(type(name) == "string" and name or option, option .. ": '" .. shown .. "' is not a type", "as in " .. option .. " = { " ..
        (type(name) == "string" and name or "name") .. " = t.string }")
    end
  end
  return fine and typed.fields(value, option == "output" or spec.open) or { type = "object" }
end

-- The options of tool { … } as { description, input, output, handler }.
local function read(spec, complain)
  if not options.check(kind, spec, complain) then return nil end
  return {
    description = spec[1], handler = spec[2],
    input = type(spec.input) == "table" and schema_of(spec.input, "input", spec, complain) or typed.fields({}, spec.open),
    output = type(spec.output) == "table" and schema_of(spec.output, "output", spec, complain) or nil,
  }
end

local function check_task(spec, complain)
  if spec.task ~= nil and spec.task ~= "optional" and spec.task ~= "required" then
    complain("task", "'task' must be \"optional\" or \"required\"", "\"required\" suits tools that take too long for clients to wait")
  end
  for _, option in ipairs { "prepare", "poll" } do
    if spec[option] ~= nil and spec.task == nil then complain(option, "'" .. option .. "' needs 'task' in the same tool") end
  end
  if type(spec.poll) == "number" and not (spec.poll >= 0.1 and spec.poll <= 3600) then
    complain("poll", "'poll' must be from 0.1 to 3600 seconds", "as in poll = 5 * seconds")
  end
end

local function check_concurrency(most, complain)
  if math.type(most) == "integer" and most < 1 then
    complain("concurrency", "'concurrency' must be at least 1", "enabled = false switches a tool off")
  end
end

local function compile(word, written_schema, complain)
  local ok, check, why, check_of = pcall(schema.compile, written_schema)
  if ok and check then return check, why, check_of end
  why = ok and why or check
  if type(why) == "table" then why = (why.path and why.path ~= "" and why.path .. ": " or "") .. tostring(why.message) end
  complain(word, "the " .. word .. " schema is not valid: " .. tostring(why))
end

--- Prepares the tool that a file returned. Calls complain(word or line, what, hint) for each error.
function tool.build(name, value, text, complain)
  local spec, read_spec = {}
  if type(value) == "function" then
    read_spec = annotated.read(value, text, complain)
  else
    spec = frozen.content(value).spec
    read_spec = read(spec, complain)
    if not read_spec then return nil end
  end
  local input, output = read_spec.input, read_spec.output
  if input.type ~= "object" then complain("input", "the input of a tool must be an object", "as in input = { name = t.string }") end

  check_task(spec, complain)
  check_concurrency(spec.concurrency, complain)
  local ui = apps.of_tool(spec.ui, complain)
  local hinted
  for option, hint in pairs(hints) do
    if spec[option] ~= nil then
      hinted = hinted or {}
      hinted[hint] = spec[option]
    end
  end
  local check, check_members, check_of = compile("input", input, complain)
  return options.guard({
    name = name,
    description = read_spec.description,
    handler = spec.concurrency and turns.limit(name, read_spec.handler, spec.concurrency) or read_spec.handler,
    positional = read_spec.positional,
    input = input,
    check = check,
    check_members = check_members,
    check_of = check_of,
    output = output and (compile("output", output, complain)),
    defaults = arguments.defaults(input),
    mirror = mirror.rows(input, function(what, hint) complain("header", what, hint) end),
    concurrency = spec.concurrency,
    task = spec.task,
    prepare = spec.prepare,
    poll = spec.poll,
    ui = ui and ui.resourceUri,
    definition = setmetatable({
      name = name, title = spec.title, description = read_spec.description, inputSchema = input, outputSchema = output,
      annotations = hinted, icons = options.list(spec.icons), _meta = options.meta(spec, ui),
    }, definition_order),
  }, spec)
end

return tool
