-- The name a person probably meant: edit distance over a handful of known names.

local sorted = require "moonpool.sorted"

local suggest = {}

-- Optimal string alignment: insert, remove, replace and swapped neighbours cost one each.
local function distance(a, b, limit)
  if math.abs(#a - #b) > limit then return limit + 1 end
  local before, row = nil, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local now, best = { [0] = i }, i
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local cost = math.min(row[j] + 1, now[j - 1] + 1, row[j - 1] + (same and 0 or 1))
      if before and i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        cost = math.min(cost, before[j - 2] + 1)
      end
      now[j] = cost
      if cost < best then best = cost end
    end
    if best > limit then return limit + 1 end
    before, row = row, now
  end
  return row[#b]
end

--- The nearest of `names` (a list, or a table keyed by name) to `wrong`, or nil when none is near.
function suggest.nearest(wrong, names)
  if type(wrong) ~= "string" or #wrong > 64 then return nil end
  local list = #names == 0 and sorted(names) or names
  local limit = #wrong <= 3 and 1 or #wrong <= 8 and 2 or 3
  local found
  for _, name in ipairs(list) do
    local d = distance(wrong:lower(), name:lower(), limit)
    if d <= limit then
      if d == 0 and name ~= wrong or d < (found and found.distance or limit + 1) then found = { name = name, distance = d } end
    end
  end
  return found and found.name
end

--- "did you mean 'input'?", or nil.
function suggest.hint(wrong, names)
  local near = suggest.nearest(wrong, names)
  return near and "did you mean '" .. near .. "'?"
end

--- "did you mean 'input'? options are input, output": the nearest, where one is near, and all of the list `names`. `what` is the plural
--- of what they are.
function suggest.listed(wrong, names, what)
  local hint = suggest.hint(wrong, names)
  return (hint and hint .. " " or "") .. what .. " are " .. table.concat(names, ", ")
end

--- The first name of `given` that is none of `names`, as a text, and the hint about it; nil where all are known. 1 among
--- `names` is an item without a name.
function suggest.stranger(given, names)
  local known, told = {}, {}
  for _, name in ipairs(names) do
    known[name] = true
    told[#told + 1] = type(name) == "string" and name or nil
  end
  for name in pairs(given) do
    if not known[name] then
      table.sort(told)
      return tostring(name), suggest.listed(tostring(name), told, "options")
    end
  end
end

return suggest
