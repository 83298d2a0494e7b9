-- Completions of a value that a user is typing: from a list, the entries that begin with the value; from a function,
-- its results.

local json = require "moonpool.json"

local complete = {}

local most = 100                                                                        -- limit of the values in one completion (C-1)

--- The entries of a list that begin with `prefix`, whatever the case, in the list's order.
function complete.by_prefix(list, prefix)
  local found, wanted = {}, prefix:lower()
  for _, value in ipairs(list) do
    local text = tostring(value)
    if text:sub(1, #wanted):lower() == wanted then found[#found + 1] = text end
  end
  return found
end

--- A `completion` object for a list of values, of which `total` exist; or nil and the fault of the list.
function complete.result(list, total)
  if list == nil then list = {} end
  if type(list) ~= "table" then return nil, "a completion must return a list of strings, got a " .. type(list) end
  local values = json.array {}
  for i = 1, math.min(#list, most) do
    local value = list[i]
    if type(value) == "number" then value = tostring(value) end
    if type(value) ~= "string" or not utf8.len(value) then return nil, "item " .. i .. " of the completion is not a string" end
    values[i] = value
  end
  total = math.max(math.tointeger(total) or 0, #list)
  return { values = values, total = total, hasMore = total > #values }
end

return complete
