-- The constructors of `t.`. Each read of `t.number` makes a new object with the next number as its stamp, so that a
-- schema keeps the order in which the script wrote its fields; calling the object sets its options.
-- things/type_schema.lua makes JSON Schema of the objects.
--   type     what scripts hold, read-only
--   content  { kind, stamp, options, first, filled, definition }, which types.content returns

local exact = require "moonpool.runtime.exact"
local frozen = require "moonpool.runtime.frozen"
local hint_options = require "moonpool.things.hint_options"
local problem = require "moonpool.runtime.diagnostic"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"

local types = {}

local object = { name = "moonpool.type", what = "a type" }
local stamp = 0

function types.is_type(value) return frozen.is(value, object) end

--- The content of a type object.
function types.content(value) return frozen.content(value) end

-- The options of every type. `optional` and `default`: the field may be missing. `also`: further types that the value
-- must fit.
local common = {
  title = "string", description = "string", optional = "boolean", default = "any", examples = "table", header = "string",
  deprecated = "boolean", read_only = "boolean", write_only = "boolean", also = "types",
}

-- For each constructor: the meaning of its first argument, and its own options as { JSON Schema keyword, type }.
local kinds = {
  string = { type = "string", options = {
    min = { "minLength", "integer" }, max = { "maxLength", "integer" }, pattern = { "pattern", "string" }, format = { "format", "string" },
    encoding = { "contentEncoding", "string" }, mime = { "contentMediaType", "string" }, complete = { false, "list or function" },
  } },
  number = { type = "number", options = {
    min = { "minimum", "number" }, max = { "maximum", "number" }, above = { "exclusiveMinimum", "number" },
    below = { "exclusiveMaximum", "number" }, step = { "multipleOf", "number" },
  } },
  boolean = { type = "boolean", options = {} },
  null = { type = "null", options = {} },
  any = { options = {} },
  const = { first = "value", options = {} },
  list = { type = "array", first = "type", options = {
    min = { "minItems", "integer" }, max = { "maxItems", "integer" }, unique = { "uniqueItems", "boolean" },
    contains = { "contains", "type" }, min_contains = { "minContains", "integer" }, max_contains = { "maxContains", "integer" },
  } },
  tuple = { type = "array", first = "types", options = { rest = { false, "type" } } },
  map = { type = "object", first = "type", options = {
    min = { "minProperties", "integer" }, max = { "maxProperties", "integer" }, keys = { "propertyNames", "type" },
    patterns = { "patternProperties", "map of types" },
  } },
  object = { type = "object", first = "fields", options = {
    open = { false, "boolean" }, rest = { false, "type" }, min = { "minProperties", "integer" }, max = { "maxProperties", "integer" },
    patterns = { "patternProperties", "map of types" }, needs = { "dependentRequired", "map of lists" },
  } },
  nullable = { first = "type", options = {} },
  one_of = { first = "values", options = {} },
  any_of = { first = "types", options = {} },
  all_of = { first = "types", options = {} },
  none_of = { first = "types", options = {} },
  when = { first = "branches", options = {} },
  define = { first = "definition", options = {} },
  schema = { first = "schema", options = {} },
}
kinds.integer = { type = "integer", options = kinds.number.options }
types.kinds = kinds

local function all(value, fits)
  if type(value) ~= "table" or types.is_type(value) then return false end
  for key, item in pairs(value) do
    if not fits(item, key) then return false end
  end
  return true
end

local function is_texts(value) return all(value, function(item) return type(item) == "string" end) end

-- For each type of an option: a function that checks a value, and the words for the type in error texts.
local wants = {
  any = { "anything", function() return true end },
  integer = { "an integer", function(value) return math.type(value) == "integer" end },
  type = { "a type", function(value) return types.is_type(value) end },
  types = { "a list of types", function(value) return all(value, function(item, key) return types.is_type(item) and math.type(key) end) end },
  ["list or function"] = { "a list or function", function(value) return type(value) == "table" or type(value) == "function" end },
  ["map of types"] = { "a table of types", function(value) return all(value, function(item,
    key) return types.is_type(item) and type(key) == "string" end) end },
  ["map of lists"] = { "a table of lists of names", function(value) return all(value, is_texts) end },
}
for _, name in ipairs { "string", "number", "boolean", "table" } do
  wants[name] = { "a " .. name, function(value) return type(value) == name end }
end

-- Sets one option of `self`; raises an error at the script's line for a wrong value.
local function take(self, name, value)
  local kind, what = kinds[self.kind], "t." .. self.kind
  local own = kind.options[name]
  local want = own and own[2] or common[name]
  if not want then
    local hint = hint_options.of_type(name, function(option) return kind.options[option] or common[option] end)
    problem.raise(3, what .. " has no option '" .. tostring(name) .. "'", hint or suggest.listed(name, sorted(kind.options, common), "options"))
  elseif not wants[want][2](value) then
    problem.raise(3, what .. ": '" .. name .. "' must be " .. wants[want][1] .. ", got a " .. (types.is_type(value) and "type" or type(value)))
  end
  self.options[name] = value
end

-- Reads the first argument of a constructor into `self`; returns the table of options that has not been read yet.
local take_first = {}

local function need_table(first, what, of)
  if type(first) ~= "table" or types.is_type(first) then problem.raise(3, what .. " needs a table of " .. of) end
end

local function take_named(self, first)
  for name, value in pairs(first) do
    if type(name) ~= "number" then take(self, name, value) end
  end
end

function take_first.type(self, what, first, more)
  if not types.is_type(first) then problem.raise(3, what .. " needs the type of its items", "as in " .. what .. "(t.string)") end
  self.first = first
  return more
end

function take_first.types(self, what, first, more)
  need_table(first, what, "types")
  if #first == 0 then problem.raise(3, what .. " needs at least one choice") end
  for i, item in ipairs(first) do
    if not types.is_type(item) then problem.raise(3, what .. ": choice " .. i .. " is not a type") end
  end
  self.first = first
  take_named(self, first)
  return more
end

-- t.one_of: values, or types of which exactly one must fit.
function take_first.values(self, what, first, more)
  need_table(first, what, "values")
  if #first == 0 then problem.raise(3, what .. " needs at least one choice") end
  for i, item in ipairs(first) do
    if types.is_type(item) ~= types.is_type(first[1]) then
      problem.raise(3, what .. ": choice " .. i .. " is not " .. (types.is_type(item) and "a value" or "a type"),
        "choices must be all values or all types: t.const(value) makes a type")
    end
  end
  self.first = first
  take_named(self, first)
  return more
end

function take_first.fields(self, what, first, more)
  need_table(first, what, "fields")
  for name, field in pairs(first) do
    if type(name) ~= "string" or not types.is_type(field) then
      problem.raise(3, what .. ": field '" .. tostring(name) .. "' is not a type", "as in " .. what .. " { name = t.string }")
    end
  end
  self.first = first
  return more
end

function take_first.schema(self, what, first, more)
  need_table(first, what, "schema")
  self.first = first
  return more
end

function take_first.value(self, what, first, more)
  if first == nil then problem.raise(3, what .. " needs a value", "as in " .. what .. ' "circle"') end
  self.first = first
  return more
end

-- t.when(t.object { kind = t.const "card" }, t.object { number = t.string }, otherwise)
function take_first.branches(self, what, condition, yes, no)
  if not types.is_type(condition) or not types.is_type(yes) or no ~= nil and not types.is_type(no) then
    problem.raise(3, what .. " needs two or three types: a condition, the type of values that match it, and optionally the type of others")
  end
  self.first = { condition, yes, no }
end

-- t.define("tree", function(tree) return t.object { leaves = t.list(tree) } end)
function take_first.definition(self, what, name, of, _, itself)
  if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then problem.raise(3, what .. " needs a name", "as in " .. what
    .. '("point", t.object { … })') end
  if type(of) ~= "function" and not types.is_type(of) then problem.raise(3, what
    .. " needs a type, or a function that is given the name's type and returns one") end
  local definition = { name = name }
  self.definition = definition
  if type(of) == "function" then of = of(itself) end
  if not types.is_type(of) or frozen.content(of).definition == definition then
    problem.raise(3, what .. ": the function of '" .. name .. "' returns no type of its own")
  end
  definition.of = of
end

local call

local function new(content)
  stamp = stamp + 1
  content.stamp = stamp
  local made = frozen.new(object, {}, content)
  debug.getmetatable(made).__call = call
  return made
end

local function copy(self)
  local made = { options = {} }
  for _, name in ipairs { "kind", "first", "filled", "definition" } do made[name] = self[name] end
  for name, value in pairs(self.options) do made.options[name] = value end
  return new(made)
end

-- `t.list(t.string, { max = 3 })`, `t.one_of { "a", "b", default = "a" }`, `t.string { "About it", max = 3 }`,
-- `t.string "About it"`.
function call(value, first, more, rest, further)
  local self = frozen.content(value)
  local kind, what = kinds[self.kind], "t." .. self.kind
  local most = kind.first == "branches" and 3 or kind.first and not self.definition and 2 or 1
  if further ~= nil or most < 3 and rest ~= nil or most < 2 and more ~= nil then
    problem.raise(2, what .. " takes " .. (most == 1 and "1 argument" or most .. " arguments") .. ", got " .. (further ~= nil and 4 or rest ~= nil and 3 or 2),
      "all options are one table, as in " .. what .. (most == 1 and " { \"About it\", optional = true }" or "(…, { \"About it\", optional = true })"))
  end
  if self.definition then
    value = copy(self)        -- a use of a defined type, with its own description
    self = frozen.content(value)
  else
    if self.filled then problem.raise(2, what .. " is called twice", "write the options in one table") end
    self.filled = true
    if kind.first then first = take_first[kind.first](self, what, first, more, rest, value) end
  end
  if type(first) == "string" then
    take(self, "description", first)
  elseif type(first) == "table" and not types.is_type(first) then
    for name, given in pairs(first) do
      if name == 1 then name = "description" end
      take(self, name, given)
    end
  elseif first ~= nil then
    problem.raise(2, what .. " takes its options as a table, or its description as a string")
  end
  return value
end

local function optional(of, more)
  if not types.is_type(of) then problem.raise(2, "t.optional needs a type", "as in t.optional(t.string)") end
  if more ~= nil then of = of(more) end
  of = copy(frozen.content(of))
  frozen.content(of).options.optional = true
  return of
end

--- A new `t` for one script.
function types.new()
  return setmetatable({}, { __metatable = false, __index = function(_, name)
    if name == "optional" then return exact.of("t.optional", optional) end
    if not kinds[name] then
      problem.raise(2, "there is no type t." .. tostring(name), hint_options.type(name) or suggest.listed(name, sorted(kinds, { optional = true }), "types"))
    end
    return new { kind = name, options = {} }
  end })
end

--- The completions of a type: a list or a function; nil for none.
function types.completion(value) return frozen.content(value).options.complete end

return types
