-- Suggestions for misspelled names: the known name with the least edit distance.

local host = require "moonpool.host"
local sorted = require "moonpool.runtime.sorted_keys"

local distance = host.script.edit_distance

local suggest = {}

local FARTHEST <const> = 3     -- the greatest of limit_of

-- The greatest edit distance at which a name is suggested for `wrong`. In words of at most five letters a distance of
-- two changes half of the letters ("True", "time"), so there the first three letters must be equal ("revue", "review"),
-- and two more letters at the end make another word ("list", "listen").
local function limit_of(wrong, name)
  if #wrong > 8 then return 3 end
  if #wrong > 5 then return 2 end
  return #wrong > 3 and #name < #wrong + 2 and wrong:sub(1, 3) == name:sub(1, 3) and 2 or 1
end

--- The nearest of `names` (a list, or a table keyed by name) to `wrong`, or nil if no name is near enough.
function suggest.nearest(wrong, names)
  if type(wrong) ~= "string" or #wrong > 64 then return nil end
  local list = #names == 0 and sorted(names) or names
  local lower, found = wrong:lower(), nil
  local length, least = #wrong, math.huge
  for i = 1, #list do
    local name = list[i]
    local longer = #name - length
    if longer <= FARTHEST and longer >= -FARTHEST then
      local other = name:lower()
      local limit = limit_of(lower, other)
      local d = longer <= limit and longer >= -limit and distance(lower, other) or math.huge
      if d <= limit and (d < least or d == 0 and name ~= wrong) then found, least = name, d end
    end
  end
  return found
end

--- Returns a text such as "did you mean 'input'?", or nil if no name is near enough.
function suggest.hint(wrong, names)
  local near = suggest.nearest(wrong, names)
  return near and "did you mean '" .. near .. "'?"
end

--- The text `what` about the name `wrong`, and behind it a suggestion, if a name is near enough.
function suggest.with_hint(what, wrong, names)
  local hint = suggest.hint(wrong, names)
  return hint and what .. ": " .. hint or what
end

--- "did you mean 'input'? options are input, output": the nearest name, if one is near enough, and all of the list
--- `names`. `what` is a plural noun for the names.
function suggest.listed(wrong, names, what)
  local hint = suggest.hint(wrong, names)
  return (hint and hint .. " " or "") .. what .. " are " .. table.concat(names, ", ")
end

--- Returns the first key of `given` that is not in `names`, as a string, and a hint about it; nil if all keys are
--- known. The number 1 in `names` allows the unnamed item.
function suggest.stranger(given, names)
  local known, all_names = {}, {}
  for _, name in ipairs(names) do
    known[name] = true
    all_names[#all_names + 1] = type(name) == "string" and name or nil
  end
  for name in pairs(given) do
    if not known[name] then
      table.sort(all_names)
      return tostring(name), suggest.listed(tostring(name), all_names, "options")
    end
  end
end

return suggest
