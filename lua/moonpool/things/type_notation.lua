-- Parses types of annotations (`number`, `string[]`, `"a"|"b"`, `table<string, integer>`, `{ x: number, y?: number }`)
-- into JSON Schema, by recursive descent. The parsers return nil and what is wrong on failure.

local json = require "moonpool.json"
local suggest = require "moonpool.runtime.suggest"

local notation = {}

local names = {
  string = "string", number = "number", integer = "integer", boolean = "boolean", table = "object", any = false, ["nil"] = "null",
}

local known = "types are string, number, integer, boolean, table, any, type[], \"a\"|\"b\", { name: type }"

local union

local function skip(s, at) return s:match("^%s*()", at) end

-- Parses { name: type, name?: type }.
local function fields(s, at)
  local properties, order, required = {}, {}, {}
  at = skip(s, at)
  while s:sub(at, at) ~= "}" do
    local name, mark, next_at = s:match("^([%a_][%w_]*)%s*(%??)%s*:()", at)
    if not name then return nil, "expected 'name: type' in '" .. s:sub(at) .. "'" end
    local schema, after, nullable = union(s, next_at)
    if not schema then return nil, after end
    properties[name], order[#order + 1] = schema, name
    if mark == "" and not nullable then required[#required + 1] = name end
    at = skip(s, after)
    local c = s:sub(at, at)
    if c == "," or c == ";" then
      at = skip(s, at + 1)
    elseif c ~= "}" then
      return nil, "expected '}' in '" .. s .. "'"
    end
  end
  return {
    type = "object", properties = setmetatable(properties, { __order = order }),
    required = #required > 0 and json.array(required) or nil,
  }, at + 1
end

local function atom(s, at)
  at = skip(s, at)
  local c = s:sub(at, at)
  if c == "(" then
    local schema, after, nullable = union(s, at + 1)
    if not schema then return nil, after end
    after = skip(s, after)
    if s:sub(after, after) ~= ")" then return nil, "expected ')' in '" .. s .. "'" end
    return schema, after + 1, nullable
  elseif c == "{" then
    return fields(s, at + 1)
  elseif c == '"' or c == "'" then
    local value, after = s:match("^" .. c .. "([^" .. c .. "]*)" .. c .. "()", at)
    if not value then return nil, "a string without its closing quote in '" .. s .. "'" end
    return { enum = json.array { value }, type = "string" }, after
  end
  local number, past = s:match("^(%-?%d+%.?%d*)()", at)
  if number then return { enum = json.array { tonumber(number) }, type = math.type(tonumber(number)) == "integer" and "integer" or "number" }, past end
  local name, after = s:match("^([%a_][%w_%.]*)()", at)
  if not name then return nil, "expected a type in '" .. s .. "'" end
  if name == "true" or name == "false" then return { enum = json.array { name == "true" }, type = "boolean" }, after end
  local items = name == "table" and s:match("^%s*<()", after)
  if items then
    local _, comma = union(s, items)                -- the key's type is ignored: keys of JSON objects are strings
    comma = type(comma) == "number" and s:match("^%s*,()", comma)
    if not comma then return nil, "expected 'table<string, type>' in '" .. s .. "'" end
    local value, close = union(s, comma)
    if not value then return nil, close end
    close = s:match("^%s*>()", close)
    if not close then return nil, "expected '>' in '" .. s .. "'" end
    return { type = "object", additionalProperties = value }, close
  end
  if names[name] == nil then
    return nil, "unknown type '" .. name .. "'", suggest.hint(name, names) or known
  end
  return { type = names[name] or nil }, after, name == "nil"
end

-- Parses a simple type with the [] and ? after it.
local function postfix(s, at)
  local schema, after, third = atom(s, at)
  if not schema then return nil, after, third end
  local nullable = third
  while true do
    local past = s:match("^%[%]()", after)
    if past then
      schema, after, nullable = { type = "array", items = schema }, past, false
    elseif s:sub(after, after) == "?" then
      after, nullable = after + 1, true
    else
      return schema, after, nullable
    end
  end
end

-- Parses alternatives: literals of one type make an enum, other types an anyOf. With `nil` among them the whole type is
-- optional.
function union(s, at)
  local all, optional = {}, false
  while true do
    local schema, after, third = postfix(s, at)
    if not schema then return nil, after, third end
    if third then optional = true end
    if schema.type ~= "null" then all[#all + 1] = schema end
    at = s:match("^%s*|()", after)
    if not at then
      at = after
      break
    end
  end
  if #all == 0 then return { type = "null" }, at, true end
  local enum = all[1].enum and json.array {}
  for _, schema in ipairs(all) do
    if enum and schema.enum and schema.type == all[1].type then
      for _, value in ipairs(schema.enum) do enum[#enum + 1] = value end
    else
      enum = nil
    end
  end
  if #all == 1 then return all[1], at, optional end
  if enum then return { type = all[1].type, enum = enum }, at, optional end
  return { anyOf = json.array(all) }, at, optional
end

--- Parses the type at the start of `s`. Returns the schema, the position after it, and whether it is optional; or nil,
--- what is wrong, a hint.
function notation.parse(s) return union(s, 1) end

return notation
