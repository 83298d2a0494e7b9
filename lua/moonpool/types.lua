-- The `t.` constructors. Each reading of `t.number` makes a new object stamped with its turn, so a schema keeps the order
-- it was written in; calling it fills in the options. `types.schema` turns objects into JSON Schema.

local json = require "moonpool.json"
local problem = require "moonpool.problem"
local sorted = require "moonpool.sorted"
local suggest = require "moonpool.suggest"

local types = {}

local object = { __name = "moonpool.type", __metatable = false }
local stamp = 0

function types.is_type(value) return debug.getmetatable(value) == object end

-- Options that every type takes; `optional` and `default` say it may be left out.
local common = { title = "string", description = "string", optional = "boolean", default = "any", examples = "table", header = "string" }

-- Per constructor: what its first argument is, and its own options as { JSON Schema keyword, type }.
local kinds = {
  string = { type = "string", options = {
    min = { "minLength", "integer" }, max = { "maxLength", "integer" }, pattern = { "pattern", "string" }, format = { "format", "string" },
    complete = { false, "list or function" },
  } },
  number = { type = "number", options = {
    min = { "minimum", "number" }, max = { "maximum", "number" }, above = { "exclusiveMinimum", "number" },
    below = { "exclusiveMaximum", "number" }, step = { "multipleOf", "number" },
  } },
  boolean = { type = "boolean", options = {} },
  null = { type = "null", options = {} },
  any = { options = {} },
  list = { type = "array", first = "type", options = {
    min = { "minItems", "integer" }, max = { "maxItems", "integer" }, unique = { "uniqueItems", "boolean" },
  } },
  map = { type = "object", first = "type", options = { min = { "minProperties", "integer" }, max = { "maxProperties", "integer" } } },
  object = { type = "object", first = "fields", options = { open = { false, "boolean" } } },
  one_of = { first = "values", options = {} },
  any_of = { first = "types", options = {} },
  schema = { first = "schema", options = {} },
}
kinds.integer = { type = "integer", options = kinds.number.options }

local function is(value, want)
  if want == "any" then return true end
  if want == "integer" then return math.type(value) == "integer" end
  if want == "list or function" then return type(value) == "table" or type(value) == "function" end
  return type(value) == want
end

-- Takes one option into `self`; a wrong one is an error at the script's line.
local function take(self, name, value)
  local kind, what = kinds[self.kind], "t." .. self.kind
  local own = kind.options[name]
  local want = own and own[2] or common[name]
  if not want then
    local names = sorted(kind.options, common)
    problem.raise(3, what .. " has no option '" .. tostring(name) .. "'",
      (suggest.hint(name, names) or "") .. " options are " .. table.concat(names, ", "))
  elseif not is(value, want) then
    problem.raise(3, what .. ": '" .. name .. "' must be " .. (want == "integer" and "an " or "a ") .. want .. ", got a " .. type(value))
  end
  self.options[name] = value
end

-- `t.list(t.string, { max = 3 })`, `t.one_of { "a", "b", default = "a" }`, `t.string { "About it", max = 3 }`, `t.string "About it"`.
function object.__call(self, first, more)
  local kind, what = kinds[self.kind], "t." .. self.kind
  if self.filled then problem.raise(2, what .. " is called twice", "write the options in one table") end
  self.filled = true
  if kind.first == "type" then
    if not types.is_type(first) then problem.raise(2, what .. " needs the type of its items", "as in " .. what .. "(t.string)") end
    self.first, first = first, more
  elseif kind.first == "values" or kind.first == "types" or kind.first == "fields" or kind.first == "schema" then
    if type(first) ~= "table" or types.is_type(first) then problem.raise(2, what .. " needs a table of " .. kind.first) end
    self.first = first
    if kind.first == "values" or kind.first == "types" then
      if #first == 0 then problem.raise(2, what .. " needs at least one choice") end
      for i, item in ipairs(first) do
        if kind.first == "types" and not types.is_type(item) then problem.raise(2, what .. ": choice " .. i .. " is not a type") end
      end
      for name, value in pairs(first) do
        if type(name) ~= "number" then take(self, name, value) end
      end
    elseif kind.first == "fields" then
      for name, field in pairs(first) do
        if type(name) ~= "string" or not types.is_type(field) then
          problem.raise(2, what .. ": field '" .. tostring(name) .. "' is not a type", "as in " .. what .. " { name = t.string }")
        end
      end
    end
    first = more
  end
  if type(first) == "string" then
    take(self, "description", first)
  elseif type(first) == "table" and not types.is_type(first) then
    for name, value in pairs(first) do
      if name == 1 then name = "description" end
      take(self, name, value)
    end
  elseif first ~= nil then
    problem.raise(2, what .. " takes its options as a table, or its description as a string")
  end
  return self
end

local function optional(of, more)
  if not types.is_type(of) then problem.raise(2, "t.optional needs a type", "as in t.optional(t.string)") end
  if more ~= nil then of(more) end
  of.options.optional = true
  return of
end

--- A new `t` for one script.
function types.new()
  return setmetatable({}, { __metatable = false, __index = function(_, name)
    if name == "optional" then return optional end
    if not kinds[name] then
      local names = sorted(kinds, { optional = true })
      problem.raise(2, "there is no type t." .. tostring(name),
        (suggest.hint(name, names) or "") .. " types are " .. table.concat(names, ", "))
    end
    stamp = stamp + 1
    return setmetatable({ kind = name, stamp = stamp, options = {} }, object)
  end })
end

--- The fields' names, in the order they were written.
local function ordered(fields)
  local names = {}
  for name in pairs(fields) do names[#names + 1] = name end
  table.sort(names, function(a, b)
    local left, right = fields[a].stamp, fields[b].stamp
    if left ~= right then return left < right end
    return a < b
  end)
  return names
end

-- Enumerated values of one JSON type say that type.
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

local keyword_order = { "$schema", "type", "title", "description", "properties", "items", "enum", "required" }

--- An object schema of `fields` (name -> type object). Unknown names are refused unless `open`.
function types.fields(fields, open)
  local names, properties, required = ordered(fields), {}, {}
  for _, name in ipairs(names) do
    local options = fields[name].options
    properties[name] = types.schema(fields[name])
    if not options.optional and options.default == nil then required[#required + 1] = name end
  end
  local schema = {
    type = "object",
    properties = #names > 0 and setmetatable(properties, { __order = names }) or nil,
    required = #required > 0 and json.array(required) or nil,
  }
  if not open then schema.additionalProperties = false end
  return setmetatable(schema, { __order = keyword_order })
end

--- What completes a type's values, a list or a function, or nil.
function types.completion(self) return self.options.complete end

--- The JSON Schema of a type object.
function types.schema(self)
  local kind, options = kinds[self.kind], self.options
  local schema
  if self.kind == "object" then
    schema = types.fields(self.first or {}, options.open or not self.first)
  elseif self.kind == "schema" then
    schema = {}
    for keyword, value in pairs(self.first) do schema[keyword] = value end
  else
    schema = { type = kind.type }
  end
  if not getmetatable(schema) then setmetatable(schema, { __order = keyword_order }) end
  if self.kind == "list" then
    schema.items = self.first and types.schema(self.first)
  elseif self.kind == "map" then
    schema.additionalProperties = self.first and types.schema(self.first)
  elseif self.kind == "one_of" then
    schema.enum = json.array { table.unpack(self.first or {}) }
    schema.type = type_of_values(schema.enum)
  elseif self.kind == "any_of" then
    schema.anyOf = json.array {}
    for i, choice in ipairs(self.first or {}) do schema.anyOf[i] = types.schema(choice) end
  end
  for name, value in pairs(options) do
    local own = kind.options[name]
    if own then
      if own[1] then schema[own[1]] = value end
    elseif name == "header" then
      schema["x-mcp-header"] = value
    elseif name ~= "optional" then
      schema[name] = value
    end
  end
  if schema.examples then schema.examples = json.array { table.unpack(schema.examples) } end
  return schema
end

return types
