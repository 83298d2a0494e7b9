-- Mcp-Param-* headers of stateless revisions: they repeat arguments for proxies that do not read bodies.

local host = require "moonpool.host"
local errors = require "moonpool.runtime.rpc_error"

local param_headers = {}

--- The value of a header, decoded if it has the form =?base64?…?= (H-4, H-5); nil when the Base64 does not hold UTF-8.
function param_headers.decode(value)
  local inside = value:match "^=%?base64%?(.*)%?=$"
  if not inside then return value end
  local bytes = host.base64.decode(inside)
  return bytes and utf8.len(bytes) and bytes or nil
end

-- The keywords that hold schemas, except `properties`. An annotation below one of them has no effect, since no header
-- can name that argument (H-6). `items` of draft-07 may hold a list.
local holds_one = {
  "items", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "not", "if", "then",
  "else", "additionalItems",
}
local holds_many = {
  "items", "prefixItems", "patternProperties", "dependentSchemas", "dependencies", "definitions", "$defs", "allOf", "anyOf", "oneOf",
}

local kinds = { string = true, integer = true, boolean = true }

local function walk(schema, path, found, complain, depth)
  if type(schema) ~= "table" or depth > 64 then return end
  local name = schema["x-mcp-header"]
  if name ~= nil then
    local what = "the header of '" .. (path and table.concat(path, ".") or "?") .. "' "
    if not path or #path == 0 then
      complain(what .. "cannot be sent", "only properties below 'properties' can have a header, not those in 'items', 'anyOf' and the like")
    elseif type(name) ~= "string" or not name:find "^[%w!#$%%&'*+%-.^_`|~]+$" then
      complain(what .. "is not a header name", "letters, digits and '-', as in header = \"Region\"")
    elseif not kinds[schema.type] then
      complain(what .. "needs a string, an integer or a boolean")
    elseif found[name:lower()] then
      complain("two arguments share the header '" .. name .. "'")
    else
      found[name:lower()] = true
      found[#found + 1] = { header = "mcp-param-" .. name:lower(), name = name, path = path }
    end
  end
  for _, keyword in ipairs(holds_one) do walk(schema[keyword], nil, found, complain, depth + 1) end
  for _, keyword in ipairs(holds_many) do
    local many = schema[keyword]
    if type(many) == "table" and (keyword ~= "items" or many[1] ~= nil) then
      for _, below in pairs(many) do walk(below, nil, found, complain, depth + 1) end
    end
  end
  for key, property in pairs(type(schema.properties) == "table" and schema.properties or {}) do
    local longer = path and { table.unpack(path) }
    if longer then longer[#longer + 1] = key end
    walk(property, longer, found, complain, depth + 1)
  end
end

--- The arguments of an input schema that headers repeat, as rows { header, name, path }; nil if there are none.
function param_headers.rows(schema, complain)
  local found = {}
  walk(schema, {}, found, complain, 0)
  table.sort(found, function(a, b) return a.header < b.header end)
  return found[1] and found or nil
end

local function number_of(text)
  return text:find "^[+-]?%d+%.?%d*[eE]?[+-]?%d*$" and tonumber(text) or nil
end

local function wrong(row, what)
  return errors.new("header_mismatch", "header Mcp-Param-" .. row.name .. " " .. what)
end

--- Compares the headers with the arguments. Returns nothing if all agree, else an error (H-2, H-8).
function param_headers.check(call, rows, args)
  for i = 1, #rows do
    local row = rows[i]
    local text, count = host.call.header(call, row.header)
    if count == nil then return end                       -- stdio has no headers to compare
    local value = args
    for j = 1, #row.path do
      if type(value) ~= "table" then value = nil break end
      value = value[row.path[j]]
    end
    local kind = type(value)
    if kind == "userdata" then value, kind = nil, "nil" end -- null counts as absent
    if count > 1 then return wrong(row, "appears twice") end
    if kind == "nil" then
      if text then return wrong(row, "has no matching argument in the body") end
    elseif not text then
      return wrong(row, "is missing")
    elseif text:find "[^\t\32-\126]" then
      return wrong(row, "has illegal characters")
    else
      local decoded = param_headers.decode(text)
      if not decoded then return wrong(row, "is not well-formed Base64") end
      local same
      if kind == "number" then
        same = number_of(decoded) == value
      else
        same = decoded == tostring(value)
      end
      if not same then return wrong(row, "differs from the argument") end
    end
  end
end

return param_headers
