-- sorted(map [, other]): the names in a table, or in two, each once and as a text, in an order that is the same every time.

return function(map, other)
  local names = {}
  for name in next, map do names[#names + 1] = tostring(name) end
  for name in next, other or {} do
    if map[name] == nil then names[#names + 1] = tostring(name) end
  end
  table.sort(names)
  return names
end
