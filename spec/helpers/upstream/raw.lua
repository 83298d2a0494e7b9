-- Members of a JSON text as the bytes that they came in. A decoder would change them: it rounds numbers and forgets the
-- order of members.
--   raw.at(text, "params", "arguments")   the bytes of that member, or nil
local cjson = require "cjson.safe"

local raw = {}

local QUOTE <const> = 34

-- The position after the string that begins at `at`.
local function after_string(text, at)
  at = at + 1
  while true do
    local stop = text:find('["\\]', at) or error "a JSON string has no end"
    if text:byte(stop) == QUOTE then return stop + 1 end
    at = stop + 2
  end
end

-- The position after the value that begins at `at`.
local function after_value(text, at)
  local first = text:sub(at, at)
  if first == '"' then return after_string(text, at) end
  if first ~= "{" and first ~= "[" then return text:match("^[^%s,%]}]+()", at) or error "a JSON value is missing" end
  local depth = 0
  while true do
    local stop = text:find('["{}%[%]]', at) or error "a JSON value has no end"
    local char = text:sub(stop, stop)
    if char == '"' then
      at = after_string(text, stop)
    else
      depth = depth + ((char == "{" or char == "[") and 1 or -1)
      at = stop + 1
      if depth == 0 then return at end
    end
  end
end

--- The members of an object: bytes by name, and the names in their order. nil if `text` is no object.
function raw.members(text)
  local found, order = {}, {}
  local at = text:match "^%s*{%s*()"
  if not at then return nil end
  while text:sub(at, at) == '"' do
    local stop = after_string(text, at)
    local name = cjson.decode("[" .. text:sub(at, stop - 1) .. "]")[1]
    at = text:match("^%s*:%s*()", stop) or error "a JSON member has no value"
    local over = after_value(text, at)
    found[name] = text:sub(at, over - 1)
    order[#order + 1] = name
    at = text:match("^%s*,?%s*()", over)
  end
  return found, order
end

--- The values of an array, as bytes. nil if `text` is no array.
function raw.items(text)
  local list = {}
  local at = text:match "^%s*%[%s*()"
  if not at then return nil end
  while at <= #text and text:sub(at, at) ~= "]" do
    local over = after_value(text, at)
    list[#list + 1] = text:sub(at, over - 1)
    at = text:match("^%s*,?%s*()", over)
  end
  return list
end

--- The bytes of the member that a path of names and positions (from 1) leads to, or nil.
function raw.at(text, ...)
  for _, step in ipairs { ... } do
    local inside = text and (type(step) == "number" and raw.items(text) or raw.members(text))
    text = inside and inside[step]
  end
  return text
end

--- A text as a JSON string.
function raw.quote(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return c == '"' and '\\"' or c == "\\" and "\\\\" or ("\\u%04x"):format(c:byte()) end) .. '"'
end

return raw
