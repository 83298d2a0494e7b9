-- Makes JSON Schema (2020-12) of the type objects of `t.`.

local json = require "moonpool.json"
local types = require "moonpool.things.type_builder"

local typed = {}

local kinds = types.kinds
local keyword_order = { "$schema", "type", "title", "description", "properties", "items", "enum", "required" }

-- Options of every type that have another name in JSON Schema.
local renamed = { header = "x-mcp-header", read_only = "readOnly", write_only = "writeOnly" }

local function written(schema) return setmetatable(schema, { __order = keyword_order }) end

--- The names of the fields, in the order in which the script wrote them.
local function ordered(fields)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names, function(a, b)
    local left, right = types.content(fields[a]).stamp, types.content(fields[b]).stamp
    if left ~= right then return left < right end
    return a < b
  end)
  return names
end

-- The JSON type of enumerated values, if all have the same.
local function type_of_values(values)
  local found
  for _, value in ipairs(values) do
    local kind = math.type(value) == "integer" and "integer" or type(value)
    if kind == "float" then kind = "number" end
    if found and found ~= kind then return nil end
    found = kind
  end
  return (found == "string" or found == "integer" or found == "number" or found == "boolean") and found or nil
end

-- `defs` are the definitions of the whole schema so far. `is_part`: other schemas apply to the same object, and may
-- define the unknown fields.
local schema_of

local function schemas_of(list, defs, is_part)
  local all = json.array {}
  for i, item in ipairs(list) do all[i] = schema_of(item, defs, is_part) end
  return all
end

local function is_needed(field)
  local options = types.content(field).options
  return not options.optional and options.default == nil
end

local function fields_of(fields, open, defs)
  local names, properties, required = ordered(fields), {}, {}
  for _, name in ipairs(names) do
    properties[name] = schema_of(fields[name], defs)
    if is_needed(fields[name]) then required[#required + 1] = name end
  end
  local schema = {
    type = "object",
    properties = #names > 0 and setmetatable(properties, { __order = names }) or nil,
    required = #required > 0 and json.array(required) or nil,
  }
  if not open then schema.additionalProperties = false end
  return written(schema)
end

-- A schema of several objects gets the type "object" at the top as well, since clients look for it there.
local function all_objects(list)
  for _, schema in ipairs(list) do
    if schema.type ~= "object" then return nil end
  end
  return "object"
end

-- For each constructor, the schema made of its first argument.
local forms = {}

function forms.object(self, defs, is_part)
  local open = self.options.open
  if open == nil then open = is_part or not self.first end
  local schema = fields_of(self.first or {}, open, defs)
  if self.options.rest then schema.additionalProperties = schema_of(self.options.rest, defs) end
  return schema
end

function forms.list(self, defs) return { items = self.first and schema_of(self.first, defs) } end

function forms.map(self, defs) return { additionalProperties = self.first and schema_of(self.first, defs) } end

function forms.tuple(self, defs)
  local least = 0
  for i, item in ipairs(self.first or {}) do
    if is_needed(item) then least = i end
  end
  local rest = self.options.rest
  local schema = { prefixItems = self.first and schemas_of(self.first, defs), minItems = least }
  -- `items = false` would say the same, but validators of draft-07, which do not know prefixItems, refuse every value then
  if rest then schema.items = schema_of(rest, defs) else schema.maxItems = #(self.first or {}) end
  return schema
end

function forms.const(self) return { const = self.first, type = type_of_values { self.first } } end

function forms.one_of(self, defs)
  local choices = self.first or {}
  if types.is_type(choices[1]) then
    local list = schemas_of(choices, defs)
    return { oneOf = list, type = all_objects(list) }
  end
  local values = json.array { table.unpack(choices) }
  return { enum = values, type = type_of_values(values) }
end

function forms.any_of(self, defs)
  local list = schemas_of(self.first or {}, defs)
  return { anyOf = list, type = all_objects(list) }
end

function forms.all_of(self, defs)
  local list = schemas_of(self.first or {}, defs, true)
  return { allOf = list, type = all_objects(list) }
end

function forms.none_of(self, defs)
  local list = schemas_of(self.first or {}, defs, true)
  return { ["not"] = #list == 1 and list[1] or { anyOf = list } }
end

function forms.when(self, defs)
  local list = schemas_of(self.first or {}, defs, true)
  return { ["if"] = list[1], ["then"] = list[2], ["else"] = list[3] }
end

function forms.nullable(self, defs)
  local schema = self.first and schema_of(self.first, defs) or {}
  if type(schema.type) ~= "string" or schema.const ~= nil or schema.oneOf or schema.anyOf or schema.allOf then
    return { anyOf = json.array { schema, { type = "null" } } }
  end
  schema.type = json.array { schema.type, "null" }
  if schema.enum then schema.enum[#schema.enum + 1] = json.null end
  return schema
end

function forms.schema(self)
  local schema = {}
  for keyword, value in pairs(self.first or {}) do schema[keyword] = value end
  return schema
end

-- A reference to a definition at the top of the schema. If two definitions have the same name, one is renamed there.
function forms.define(self, defs)
  local definition = self.definition
  if not definition then return {} end
  local name, n = definition.name, 1
  while defs[name] and defs[name].definition ~= definition do
    n = n + 1
    name = definition.name .. "_" .. n
  end
  if not defs[name] then
    defs[name] = { definition = definition }
    defs[name].schema = schema_of(definition.of, defs)
  end
  return { ["$ref"] = "#/$defs/" .. name }
end

-- The value of an option in the schema, by the option's type.
local values = {
  ["map of types"] = function(map, defs)
    local schemas = {}
    for name, item in pairs(map) do schemas[name] = schema_of(item, defs) end
    return json.object(schemas)
  end,
  ["map of lists"] = function(map)
    local lists = {}
    for name, list in pairs(map) do lists[name] = json.array { table.unpack(list) } end
    return json.object(lists)
  end,
}

function schema_of(value, defs, is_part)
  local self = types.content(value)
  local kind, options = kinds[self.kind], self.options
  local form = forms[self.kind]
  local schema = form and form(self, defs, is_part) or {}
  schema.type = schema.type or kind.type
  if not getmetatable(schema) then written(schema) end
  for name, given in pairs(options) do
    local own = kind.options[name]
    if own then
      local made = values[own[2]]
      if own[1] then schema[own[1]] = made and made(given, defs) or not made and given end
    elseif name == "also" then
      local list = schemas_of(given, defs, true)
      schema.allOf = schema.allOf and table.move(list, 1, #list, #schema.allOf + 1, schema.allOf) or list
    elseif name ~= "optional" then
      schema[renamed[name] or name] = given
    end
  end
  if schema.examples then schema.examples = json.array { table.unpack(schema.examples) } end
  return schema
end
values.type = schema_of

local function with_definitions(schema, defs)
  local all = {}
  for name, made in pairs(defs) do all[name] = made.schema end
  if next(all) then schema["$defs"] = all end
  return schema
end

--- The object schema of `fields` (name -> type object). Unknown names are refused unless `open`.
function typed.fields(fields, open)
  local defs = {}
  return with_definitions(fields_of(fields, open, defs), defs)
end

--- The JSON Schema of a type object.
function typed.schema(value)
  local defs = {}
  local schema = schema_of(value, defs)
  local self = types.content(value)
  local definition = self.definition
  if definition then                     -- the top must not be a bare reference: clients look for a type there
    schema = schema_of(definition.of, defs)
    schema.description = self.options.description or schema.description
  end
  return with_definitions(schema, defs)
end

return typed
