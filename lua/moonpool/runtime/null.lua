-- json.null in scripts: errors of Lua about it name it, and json.decode can leave nulls out.

local json = require "moonpool.json"
local problem = require "moonpool.runtime.diagnostic"

local null = {}

local hint = "JSON's null is a value of its own, which counts as true: compare with json.null, or decode with { nulls = false }"

-- All light userdata share one metatable. Scripts can hold two of them: json.null and json.empty_array.
local function name_of(one, other) return (one == json.null or other == json.null) and "json.null" or "json.empty_array" end

local function refusing(deed)
  return function(one, other)
    local name = name_of(one, other)
    problem.raise(2, "attempt to " .. deed .. " " .. name, name == "json.null" and hint or nil)
  end
end

local function refuse_field(value, name)
  problem.raise(2, "attempt to index " .. name_of(value) .. " (field '" .. tostring(name) .. "')", value == json.null and hint or nil)
end

local arithmetic = refusing "perform arithmetic on"
local mt = {
  __metatable = false, __tostring = name_of, __index = refuse_field, __newindex = refuse_field,
  __concat = refusing "concatenate", __call = refusing "call", __len = refusing "get length of", __lt = refusing "compare", __le = refusing "compare",
}
for _, name in ipairs { "add", "sub", "mul", "div", "mod", "pow", "unm", "idiv", "band", "bor", "bxor", "shl", "shr", "bnot" } do
  mt["__" .. name] = arithmetic
end

if type(json.null) == "userdata" then debug.setmetatable(json.null, mt) end

-- Removes null members from objects. Nulls in lists stay, so that the other items keep their positions.
local function without_nulls(value)
  local is_list = debug.getmetatable(value) == json.array_mt
  for name, inner in next, value do
    if inner == json.null then
      if not is_list then value[name] = nil end
    elseif type(inner) == "table" then
      without_nulls(inner)
    end
  end
end

-- Reads the option `nulls` of json.decode. True if nulls are kept.
local function keeps(options, what)
  if options == nil then return true end
  if type(options) ~= "table" then problem.raise(3, what .. ": options must be a table", "as in { nulls = false }") end
  for name in next, options do
    if name ~= "nulls" then problem.raise(3, what .. " has no option '" .. tostring(name) .. "'", "the only option is 'nulls'") end
  end
  local nulls = rawget(options, "nulls")
  if nulls ~= nil and type(nulls) ~= "boolean" then problem.raise(3, what .. ": 'nulls' must be true or false", "false: members that are null are absent") end
  return nulls ~= false
end

--- json.decode(text [, { nulls = false }]): the value; or nil, why. Without nulls, members of objects that are null are
--- absent and a text that is null gives nil; in lists null stays json.null. `what` names the function in error texts.
function null.decode(text, options, what)
  local keep = keeps(options, what or "json.decode")
  local value, why = json.decode(text)
  if keep or value == nil then return value, why end
  if value == json.null then return nil end
  if type(value) == "table" then without_nulls(value) end
  return value
end

return null
