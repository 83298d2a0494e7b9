-- Decides which tools have a call plan, and describes the plans for C (core/lib/shortcut/plan.c). A call that is plain
-- in every respect is served by its plan: C checks the arguments and runs the handler. All other calls take the general
-- path of methods/dispatch.lua and methods/tools.lua.

local host = require "moonpool.host"
local arguments = require "moonpool.things.arguments"
local redact = require "moonpool.runtime.redact"
local sorted = require "moonpool.runtime.sorted_keys"

local plan = {}

local MAX_FIELDS = 16          -- fields of one object: MP_PLAN_FIELDS in core/lib/shortcut/plan.h
local MAX_CHOICES = 32         -- values of one enum
local MAX_ALL = 512            -- fields of all objects and lists of one schema
local EXACT = 2 ^ 53           -- C compares bounds as doubles: integers up to here are exact

-- Schema keywords that do not restrict any value.
local annotations = {
  title = true, description = true, default = true, examples = true, deprecated = true, readOnly = true, writeOnly = true, format = true,
  ["$comment"] = true,
}

-- The types whose values C checks, and the keywords that it knows for each.
local limits = {
  number = { minimum = "least", maximum = "most", exclusiveMinimum = "above", exclusiveMaximum = "below" },
  integer = { minimum = "least", maximum = "most", exclusiveMinimum = "above", exclusiveMaximum = "below" },
  string = { minLength = "least", maxLength = "most" },
  boolean = {},
}

local is_scalar = { string = true, number = true, boolean = true }

-- The list of an enum, if it holds a few strings only; else nil.
local function choices_of(enum)
  if #enum == 0 or #enum > MAX_CHOICES then return nil end
  for _, value in ipairs(enum) do
    if type(value) ~= "string" then return nil end
  end
  return { table.unpack(enum) }
end

local object_of, left_fields, check_of

-- Gives each field of an object or list, `inner`, the compiled check of its schema, by which a wrong value in it is
-- explained. things/arguments.lua adds the words for its place to the same table when it first needs them.
local function with_checks(inner, schemas)
  for _, field in ipairs(inner and check_of and inner.fields or {}) do field.inside = { check = check_of(schemas[field.name]) } end
  return inner
end

-- The keywords of lists that C knows.
local list_limits = { minItems = "least", maxItems = "most", items = "items" }

-- The field of an object as C checks it; nil if its schema says more than C knows. `within`: what C knows at this place:
-- "scalars"; "objects" of scalars, too; "all": also lists, and objects of everything that have no default values inside.
local function known_field(name, schema, is_required, within)
  left_fields = left_fields - 1
  if type(schema) ~= "table" or left_fields < 0 then return nil end
  local made = { name = name, kind = schema.type, is_required = is_required, default = schema.default }
  if made.default ~= nil and not is_scalar[type(made.default)] then return nil end
  if schema.type == "object" then
    made.inner = within ~= "scalars" and object_of(schema, nil, "scalars") or nil
    if not made.inner and within == "all" and not arguments.defaults(schema) then
      made.kind, made.inner = "tree", object_of(schema, nil, "all")
    end
    return with_checks(made.inner, schema.properties) and made
  end
  local known = type(schema.type) == "string" and (limits[schema.type] or within == "all" and schema.type == "array" and list_limits)
  if not known then return nil end
  for keyword, value in pairs(schema) do
    if keyword == "items" and known.items then
      local item = known_field("", value, false, "all")
      made.kind, made.inner = "list", with_checks(item and { fields = { item } }, { [""] = value })
    elseif known[keyword] then
      if not (value >= -EXACT and value <= EXACT) then return nil end
      made[known[keyword]] = value + 0.0
    elseif keyword == "enum" and schema.type == "string" then
      made.choices = choices_of(value)
      if not made.choices then return nil end
    elseif keyword ~= "type" and not annotations[keyword] then
      return nil
    end
  end
  if known.items and not made.inner then return nil end
  return made
end

local function field_of(name, schema, is_required, within, takes_any)
  local made = known_field(name, schema, is_required, within)
  return made or takes_any and { name = name, kind = "any", is_required = is_required } or nil
end

local object_keywords = { type = true, properties = true, required = true, additionalProperties = true }

-- The indexes of the fields to which default values may be added, in the order in which arguments.fill adds them.
local function defaults_of(schema, fields)
  local at, order = {}, {}
  for i, field in ipairs(fields) do at[field.name] = i end
  for i, row in ipairs(arguments.defaults(schema) or {}) do order[i] = at[row.name] end
  return order
end

-- An object schema as C checks it, its fields in the order of `names`; nil if the schema says more than C knows. `within`:
-- what C knows of its fields. With `takes_any` the schemas of these may say more.
function object_of(schema, names, within, takes_any)
  local properties, required, fields = schema.properties or {}, {}, {}
  names = names or sorted(properties)
  if schema.type ~= "object" or #names > MAX_FIELDS then return nil end
  if schema.additionalProperties ~= nil and type(schema.additionalProperties) ~= "boolean" then return nil end
  for keyword in pairs(schema) do
    if not object_keywords[keyword] and not annotations[keyword] and not (takes_any and keyword == "$defs") then return nil end
  end
  for _, name in ipairs(schema.required or {}) do
    if properties[name] == nil then return nil end
    required[name] = true
  end
  for i, name in ipairs(names) do
    fields[i] = field_of(name, properties[name], required[name] or false, within, takes_any)
    if not fields[i] then return nil end
  end
  return { fields = fields, is_closed = schema.additionalProperties == false, defaults = defaults_of(schema, fields) }
end

-- The schema of all arguments or of a result.
local function root_of(schema, names, within, takes_any, checks)
  left_fields, check_of = MAX_ALL, checks
  return object_of(schema, names, within, takes_any)
end

-- The place of `call` among the parameters of a function (args, call); nil if it takes no `call`.
local function place_of_call(f)
  local info = debug.getinfo(f, "u")
  return (info.nparams > 1 or info.isvararg) and 2 or nil
end

-- The function that checks arguments which C does not know, and adds their default values.
local function checker(tool)
  local check, defaults = tool.check, tool.defaults
  if not defaults then return check end
  return function(args)
    local fits, why = check(args)
    if not fits then return nil, why end
    arguments.fill(defaults, args)
    return true
  end
end

-- True if calls of the tool are not plain: they need a decision of a script, headers, capabilities, or become tasks.
local function is_special(tool)
  return tool.visible or tool.upstream or tool.task or tool.prepare or tool.mirror or tool.required_tree
    or (tool.timeout and not (tool.timeout > 0 and tool.timeout < 1e9))
end

local MAX_SCOPES = 63         -- different scopes of all tools with plans: the bits of an integer that is not negative

-- The bit set of the scopes that a tool requires. `known`: the scopes that have bits, name -> bit and a list; new
-- scopes are added. Nil if there are too many.
local function bits_of(scopes, known)
  local bits = 0
  for _, scope in ipairs(scopes or {}) do
    if not known[scope] then
      if #known == MAX_SCOPES then return nil end
      known[#known + 1], known[scope] = scope, 1 << #known
    end
    bits = bits | known[scope]
  end
  return bits
end

-- The plan of a tool, or nil.
local function plan_of(tool, known)
  if is_special(tool) then return nil end
  local scopes = bits_of(tool.scopes, known)
  if not scopes then return nil end
  local output = tool.output and root_of(tool.definition.outputSchema, nil, "objects")
  local made = {
    name = tool.name, tool = tool, metrics = host.metrics.tool(tool.name), seconds = tool.timeout, has_output = tool.output ~= nil, output = output,
    output_check = not output and tool.output or nil, scopes = scopes, has_policies = tool.has_policies,
    ends_in_lua = host.config.audit and tool.has_policies,
  }
  local short = tool.positional
  if short and tool.handler ~= short.handler then short = nil end          -- a policy is around it
  made.input = short and root_of(tool.input, short.names, "all", false, tool.check_of)
  if made.input then
    made.handler, made.is_positional, made.call = short.f, true, short.call
  else
    made.input, made.handler = root_of(tool.input, nil, "all", false, tool.check_of), tool.handler
    if not short then
      made.call = place_of_call(tool.handler)
    elseif short.call then
      made.call = 2
    end
  end
  if not made.input then
    made.check, made.fields = checker(tool), root_of(tool.input, nil, "all", true, tool.check_of)
    made.fill = tool.defaults and function(args) arguments.fill(tool.defaults, args) end
  end
  return made
end

--- The rows of host.served.publish that describe the plans of `tools`, name -> tool; and the scopes that tools with plans
--- and those of upstreams require, in the order of their bits.
function plan.rows(tools)
  local list, known = {}, {}
  if host.script.has_specs or redact.audits_values() then return list, {} end
  for _, tool in pairs(tools) do
    list[#list + 1] = plan_of(tool, known)
    if tool.upstream then bits_of(tool.scopes, known) end                      -- for its route (upstream/routes.lua)
  end
  return list, table.move(known, 1, #known, 1, {})
end

return plan
