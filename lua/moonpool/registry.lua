-- What is served: tools by name, and their list as bytes, once per era.

local content = require "moonpool.content"
local json = require "moonpool.json"

local registry = { tools = {} }

local names, lists = {}, {}

-- How long a client may keep the list, in ms (Q-1): short, because a saved script is served at once.
local keep = 5000

--- Puts a whole new set in place.
function registry.set(tools)
  registry.tools, names, lists = tools, {}, {}
  for name in pairs(tools) do names[#names + 1] = name end
  table.sort(names)
end

function registry.names() return names end

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = {}
  for k, v in pairs(value) do made[k] = copy(v) end
  return setmetatable(made, debug.getmetatable(value))
end

--- The result of tools/list in an era, as bytes. `down` tells it to that era.
function registry.list(date, down)
  local bytes = lists[date]
  if not bytes then
    local result = { tools = json.array {}, ttlMs = keep, cacheScope = "public", resultType = "complete", _meta = content.meta }
    for i, name in ipairs(names) do result.tools[i] = copy(registry.tools[name].definition) end
    if down then down(result) end
    bytes = json.raw(json.encode(result))
    lists[date] = bytes
  end
  return bytes
end

return registry
