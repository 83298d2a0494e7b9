-- Parses KEY=VALUE arguments to a table of texts and the list of keys in their order.

--- Parses the arguments from number `first` on; or nil, what, hint.
return function(words, first)
  local found, order = {}, {}
  for i = first, #words do
    local name, text = words[i]:match "^([^=]+)=(.*)$"
    if not name then return nil, "'" .. words[i] .. "' is not an argument", "write KEY=VALUE, as in name=Ann" end
    if found[name] == nil then order[#order + 1] = name end
    found[name] = text
  end
  return found, order
end
