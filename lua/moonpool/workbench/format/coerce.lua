-- Converts typed text to the type that a schema requires: "3" becomes the number 3 for a number, and stays "3" for a
-- string.

local json = require "moonpool.json"
local sorted = require "moonpool.runtime.sorted_keys"

local coerce = {}

local function kinds(schema)
  local found = {}
  local function look(one)
    if type(one) ~= "table" then return end
    if type(one.type) == "string" then found[one.type] = true end
    if type(one.type) == "table" then
      for _, kind in ipairs(one.type) do found[kind] = true end
    end
    for _, value in ipairs(one.enum or {}) do
      local kind = math.type(value) == "integer" and "integer" or type(value)
      found[kind] = true
    end
    if one.const == json.null then
      found.null = true
    elseif one.const ~= nil then
      found[math.type(one.const) == "integer" and "integer" or type(one.const) == "table" and "object" or type(one.const)] = true
    end
    for _, word in ipairs { "anyOf", "oneOf", "allOf" } do
      for _, inner in ipairs(type(one[word]) == "table" and one[word] or {}) do look(inner) end
    end
  end
  look(schema)
  return found
end

local yes = { ["true"] = true, yes = true, y = true }
local no = { ["false"] = true, no = true, n = true }

--- Converts `text` to a value that the schema allows; or nil, why.
function coerce.read(text, schema)
  local wanted = kinds(schema)
  local is_free = next(wanted) == nil
  if wanted.integer or wanted.number then
    local value = json.decode(text)
    if type(value) == "number" then return value end
  end
  if wanted.boolean then
    if yes[text:lower()] then return true end
    if no[text:lower()] then return false end
  end
  if wanted.null and text == "null" then return json.null end
  if wanted.array or wanted.object or is_free then
    local value = json.decode(text)
    if value ~= nil and (is_free or type(value) == "table") then return value end
    if wanted.array and not wanted.string and not text:find "^%s*[%[{]" then
      local item = coerce.read(text, schema.items)
      if item ~= nil then return json.array { item } end
    end
  end
  if wanted.string or is_free then return text end
  local told = table.concat(sorted(wanted), " or ")
  return nil, "'" .. text .. "' is not " .. (told:find "^[aeio]" and "an " or "a ") .. told
end

return coerce