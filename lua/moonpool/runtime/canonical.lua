-- canonical(value): the JSON of a value with its members sorted, so that equal values have equal texts.

local json = require "moonpool.json"
local sorted = require "moonpool.runtime.sorted_keys"

local MAX_DEPTH <const> = 128

local function canonical(value, depth)
  if type(value) ~= "table" or depth > MAX_DEPTH then return json.encode(type(value) == "table" and "…" or value == nil and json.null or value) end
  local parts = {}
  if value[1] ~= nil or debug.getmetatable(value) == json.array_mt then
    for i, part in ipairs(value) do parts[i] = canonical(part, depth + 1) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for _, name in ipairs(sorted(value)) do parts[#parts + 1] = json.encode(tostring(name)) .. ":" .. canonical(value[name], depth + 1) end
  if #parts == 0 then return "{}" end
  return "{" .. table.concat(parts, ",") .. "}"
end

return function(value) return canonical(value, 1) end
