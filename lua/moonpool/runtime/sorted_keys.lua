-- sorted(map [, other]): the keys of one or two tables as strings, without duplicates, in alphabetical order.

local sort = require "moonpool.runtime.stdlib.sort"

return function(map, other)
  local names = {}
  for name in next, map do names[#names + 1] = tostring(name) end
  for name in next, other or {} do
    if map[name] == nil then names[#names + 1] = tostring(name) end
  end
  sort(names)
  return names
end
