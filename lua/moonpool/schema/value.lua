-- JSON values in Lua: their kinds, equality, and texts for messages.
local json = require "moonpool.json"
local sorted = require "moonpool.runtime.sorted_keys"

local null, empty_array, array_mt, object_mt = json.null, json.empty_array, json.array_mt, json.object_mt
local type, getmetatable, math_type, next = type, getmetatable, math.type, next

local value = {}

-- The greatest depth of a value. Values from JSON text are never deeper; a table of a handler may be, or may contain
-- itself.
local DEPTH <const> = 128

-- The kind of a value: "object", "array", "string", "number", "boolean", "null"; the name of the Lua type for any other
-- value.
-- A table without a JSON metatable is an array if it has a first item.
local function kind_of(v)
  local kind = type(v)
  if kind == "table" then
    local mt = getmetatable(v)
    if mt == array_mt then return "array" end
    if v[1] ~= nil and (mt == nil or mt ~= object_mt) then return "array" end
    return "object"
  end
  if v == null then return "null" end
  if v == empty_array then return "array" end
  return kind
end
value.kind_of = kind_of

-- json.empty_array, a userdata, as an empty table that can be indexed.
local nothing = setmetatable({}, array_mt)

local function opened(v)
  if v == empty_array then return nothing end
  return v
end
value.opened = opened

-- True for whole numbers, 1.0 and 1e300 included; false for infinities and NaN.
function value.is_integer(v)
  local subtype = math_type(v)
  return subtype == "integer" or subtype == "float" and v % 1 == 0
end

-- True if two JSON values are equal. Never looks deeper into `b` than `a` goes.
local function equal(a, b)
  if a == b then return true end
  a, b = opened(a), opened(b)
  if type(a) ~= "table" or type(b) ~= "table" then return false end
  local kind = kind_of(a)
  if kind ~= kind_of(b) then return false end
  if kind == "array" then
    if #a ~= #b then return false end
    for i = 1, #a do
      if not equal(a[i], b[i]) then return false end
    end
    return true
  end
  for k, item in next, a do
    local other = b[k]
    if other == nil or not equal(item, other) then return false end
  end
  for k in next, b do
    if a[k] == nil then return false end
  end
  return true
end
value.equal = equal

local function put(out, v, depth)
  local kind = kind_of(v)
  v = opened(v)
  if depth > DEPTH or #out > out.limit then return false end
  if kind == "string" then
    out[#out + 1] = ("s%d:"):format(#v)
    out[#out + 1] = v
  elseif kind == "number" then
    out[#out + 1] = ("n%s;"):format(math.tointeger(v) or ("%.17g"):format(v))
  elseif kind == "array" then
    out[#out + 1] = "["
    for i = 1, #v do
      if not put(out, v[i], depth + 1) then return false end
    end
    out[#out + 1] = "]"
  elseif kind == "object" then
    out[#out + 1] = "{"
    for _, name in ipairs(sorted(v)) do
      if not (put(out, name, depth) and put(out, v[name], depth + 1)) then return false end
    end
    out[#out + 1] = "}"
  else
    out[#out + 1] = kind == "boolean" and tostring(v) or kind
  end
  return true
end

-- A text that is the same only for equal values, and the number of pieces counted; nil if the value is too deep, or has
-- more than about `limit` pieces.
function value.fingerprint(v, limit)
  local out = { limit = limit }
  if not put(out, v, 0) then return nil, #out end
  return table.concat(out), #out
end

-- Digits and exponent of a number: 0.0075 -> 75, -4. Exact for numbers that were written with at most 17 digits.
local function decimal(v)
  local text
  for digits = 14, 16 do
    text = ("%." .. digits .. "e"):format(v)
    if tonumber(text) == v then break end
  end
  local whole, fraction, exponent = text:match "^(%d)%.(%d-)0*e([+-]%d+)$"
  return math.tointeger(tonumber(whole .. fraction)), math.tointeger(tonumber(exponent)) - #fraction
end

-- True if `v` is a multiple of `step` (above 0), computed in decimal, as people write both.
function value.is_multiple(v, step)
  local exact, exact_step = math.tointeger(v), math.tointeger(step)
  if exact and exact_step then return exact % exact_step == 0 end
  if v ~= v or v == math.huge or v == -math.huge then return false end
  if v == 0 then return true end
  local digits, exponent = decimal(math.abs(v))
  local step_digits, step_exponent = decimal(step)
  for _ = 1, exponent - step_exponent do
    digits = digits % step_digits * 10
  end
  for _ = 1, step_exponent - exponent do
    if step_digits > digits then return false end
    step_digits = step_digits * 10
  end
  return digits % step_digits == 0
end

--- The kind of a value with its article: "a string". Integers and floats are both "a number", unless the difference
--- matters.
value.articles = setmetatable({
  object = "an object", array = "an array", string = "a string", number = "a number", integer = "an integer",
  boolean = "a boolean", null = "null", ["nil"] = "nothing",
}, { __index = function() return "something that is no JSON value" end })

-- A value as JSON for a message, cut if it is long.
function value.quote(v)
  local good, text = pcall(json.encode, v)
  if not good then return "something that is no JSON value" end
  if #text > 80 then
    local cut = utf8.offset(text, 0, 78) or 78
    text = text:sub(1, cut - 1) .. "…"
  end
  return text
end

return value
