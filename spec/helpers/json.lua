-- "moonpool.json" in plain Lua, for unit specs: slow, with the results of the C module in every case that specs check.

local cjson = require "cjson"

local json = { null = cjson.null, array_mt = { __name = "array" }, object_mt = { __name = "object" } }
local raw_mt = { __name = "raw" }

-- json.raw returns a userdata in C; here it returns a table, so that specs can read it.
function json.raw(bytes) return setmetatable({ bytes = bytes }, raw_mt) end
function json.bytes(raw) return getmetatable(raw) == raw_mt and raw.bytes or nil end
function json.array(t) return setmetatable(t, json.array_mt) end
function json.object(t) return setmetatable(t, json.object_mt) end
json.empty_array = json.array {}

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function quoted(s)
  return '"' .. s:gsub('[%c"\\]', function(c) return escapes[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function names_of(t)
  local names, seen, order = {}, {}, (debug.getmetatable(t) or {}).__order
  for _, name in ipairs(order or {}) do
    if t[name] ~= nil and not seen[name] then names[#names + 1], seen[name] = name, true end
  end
  local rest = {}
  for name in pairs(t) do
    if type(name) ~= "string" then error "mixed" end
    if not seen[name] then rest[#rest + 1] = name end
  end
  table.sort(rest)
  return table.move(rest, 1, #rest, #names + 1, names)
end

local function encode(value, path, depth)
  local kind = type(value)
  if value == json.null then return "null" end
  if kind == "string" then return quoted(value) end
  if kind == "boolean" then return tostring(value) end
  if kind == "number" then
    if value ~= value or value == math.huge or value == -math.huge then error("cannot encode " .. value .. " at " .. path, 0) end
    return math.type(value) == "integer" and ("%d"):format(value) or ("%.14g"):format(value)
  end
  if kind ~= "table" or depth > 128 then error("cannot encode a " .. kind .. " at " .. path, 0) end
  local mt = debug.getmetatable(value)
  if mt and mt.__frozen then
    value = mt.__frozen
    mt = debug.getmetatable(value)
  end
  if mt == raw_mt then return value.bytes end
  local out = {}
  if mt == json.array_mt or (mt ~= json.object_mt and #value > 0) then
    for i, item in ipairs(value) do out[i] = encode(item, path .. "[" .. i .. "]", depth + 1) end
    return "[" .. table.concat(out, ",") .. "]"
  end
  for i, name in ipairs(names_of(value)) do
    out[i] = quoted(name) .. ":" .. encode(value[name], path .. "." .. name, depth + 1)
  end
  return "{" .. table.concat(out, ",") .. "}"
end

function json.encode(value) return encode(value, "", 1) end

function json.decode(text)
  local ok, value = pcall(cjson.decode, text)
  if ok then return value end
  return nil, value
end

function json.encoded(value)
  local text = json.encode(value)
  return text, json.raw(text)
end

return json
