-- The canonical form of a definition: its JSON with sorted members and the shortest numbers. Definitions that differ only
-- in the order of their members or in spaces have one canonical form, and so one hash. The hash names its form:
-- "v2:sha256:" and 64 digits. Hashes that begin with "sha256:" are of the older form, which had nothing of `_meta` but
-- `_meta.ui`.

local host = require "moonpool.host"
local json = require "moonpool.json"

local canonical_definition = {}

local function is_list(value) return debug.getmetatable(value) == json.array_mt end

-- The shortest text of the number that reads as the same number.
local function number_text(value)
  if math.type(value) == "integer" then return ("%d"):format(value) end
  if value == math.floor(value) and math.abs(value) < 2 ^ 53 then return ("%.0f"):format(value) end
  for digits = 15, 17 do
    local text = ("%." .. digits .. "g"):format(value)
    if tonumber(text) == value then return text end
  end
  return ("%.17g"):format(value)
end

local put

local function put_object(out, value)
  local names, n = {}, 0
  for name in pairs(value) do
    n = n + 1
    names[n] = name
  end
  table.sort(names)
  out[#out + 1] = "{"
  for i = 1, n do
    out[#out + 1] = (i > 1 and "," or "") .. json.encode(names[i]) .. ":"
    put(out, value[names[i]])
  end
  out[#out + 1] = "}"
end

function put(out, value)
  if type(value) == "number" then
    out[#out + 1] = number_text(value)
  elseif type(value) ~= "table" then
    out[#out + 1] = json.encode(value)
  elseif is_list(value) then
    out[#out + 1] = "["
    for i, item in ipairs(value) do
      if i > 1 then out[#out + 1] = "," end
      put(out, item)
    end
    out[#out + 1] = "]"
  else
    put_object(out, value)
  end
end

--- The canonical form of a decoded definition. `has_plain_numbers`: true if JSON text from which it was decoded has no
--- number that json.encode writes in another form than number_text, that is, none but integers of up
--- to 15 digits.
function canonical_definition.text(definition, has_plain_numbers)
  if has_plain_numbers then return json.encode(definition) end     -- json.encode sorts members, too
  local out = {}
  put(out, definition)
  return table.concat(out)
end

--- The hash of a canonical form, as the file of approved definitions has it.
function canonical_definition.hash(text) return "v2:" .. host.upstream.hash(text) end

--- True if a hash is of the older form.
function canonical_definition.is_old(hash) return hash:find "^sha256:" ~= nil end

--- The hash of the older form. `text`: the definition as JSON.
function canonical_definition.old_hash(text)
  local definition = json.decode(text)
  local meta = type(definition) == "table" and definition._meta
  if meta ~= nil then
    local ui = type(meta) == "table" and meta.ui
    definition._meta = ui ~= nil and ui ~= false and { ui = ui } or nil
  end
  local out = {}
  put(out, definition)
  return host.upstream.hash(table.concat(out))
end

return canonical_definition
