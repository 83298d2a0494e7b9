-- Values that do not fit their schema only because of the form in which "nothing" is written: an empty table of Lua where
-- the schema wants a list, and null for an argument that may be missing. Both are looked for after a check has failed.

local json = require "moonpool.json"

local nothing = {}

local MAX_LEVELS <const> = 64        -- a schema can refer to itself
local REFERENCE <const> = "^#/%$defs/([^/]+)$"

local function resolved(schema, root)
  local name = type(schema) == "table" and type(schema["$ref"]) == "string" and schema["$ref"]:match(REFERENCE)
  return name and root["$defs"] and root["$defs"][name] or schema
end

-- True if a schema takes values of the JSON type `name`, as far as `type` says so; nil if it does not say.
local function takes(schema, name)
  if type(schema.type) == "string" then return schema.type == name end
  if type(schema.type) ~= "table" then return nil end
  for _, one in ipairs(schema.type) do
    if one == name then return true end
  end
  return false
end

-- Calls f(holder, name, schema, is_required) for each member and element of a value that its schema describes, then for
-- what is in it. `walk`: f, the root of the schema, and the schemas by which each table has been walked (`seen`): by
-- alternatives that lead back to themselves it would be walked twice as often at each level.
local function each(value, schema, walk, level)
  schema = resolved(schema, walk.root)
  if type(value) ~= "table" or type(schema) ~= "table" or level > MAX_LEVELS then return end
  local seen = walk.seen[value] or {}
  if seen[schema] then return end
  walk.seen[value], seen[schema] = seen, true
  for _, one in ipairs(type(schema.anyOf) == "table" and schema.anyOf or {}) do each(value, one, walk, level + 1) end
  local required = {}
  for _, name in ipairs(schema.required or {}) do required[name] = true end
  local properties, prefix = schema.properties or {}, schema.prefixItems or {}
  for name in pairs(value) do
    local inner = properties[name] or type(name) == "number" and (prefix[name] or schema.items)
    if inner == nil or inner == false then inner = schema.additionalProperties end
    inner = resolved(inner, walk.root)
    if type(inner) == "table" then
      walk.f(value, name, inner, required[name] or type(name) == "number")
      each(value[name], inner, walk, level + 1)
    end
  end
end

local function as_list(value)
  local is_plain = type(value) == "table" and next(value) == nil and debug.getmetatable(value) == nil
  return is_plain and json.array {} or value
end

local function wants_list(schema)
  local list = takes(schema, "array") and not takes(schema, "object")
  for _, one in ipairs(type(schema.anyOf) == "table" and schema.anyOf or {}) do list = list or takes(one, "array") end
  return list
end

--- A value of a script, with a list for each empty table where its schema wants one.
function nothing.lists(value, schema)
  if wants_list(resolved(schema, schema)) then value = as_list(value) end
  local function f(holder, name, inner)
    if wants_list(inner) then holder[name] = as_list(holder[name]) end
  end
  each(value, schema, { f = f, root = schema, seen = {} }, 1)
  return value
end

-- True if a null is in the value. Most arguments have none, and this is much less work than a walk by the schema.
local function has_null(value)
  if type(value) ~= "table" then return value == json.null end
  for _, inner in pairs(value) do
    if has_null(inner) then return true end
  end
  return false
end

--- Takes out of arguments each null for what may be missing and cannot be null. Returns whether there was one.
function nothing.drop_nulls(args, schema)
  if not has_null(args) then return false end
  local found = false
  local function f(holder, name, inner, is_required)
    if holder[name] == json.null and not is_required and (takes(inner, "null") == false or inner.enum and takes(inner, "null") == nil) then
      holder[name], found = nil, true
    end
  end
  each(args, schema, { f = f, root = schema, seen = {} }, 1)
  return found
end

return nothing
