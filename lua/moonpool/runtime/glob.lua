-- Patterns in which `*` stands for any number of characters: "gh_*", "orders://*/42".

--- Returns a function(text) that is true if the whole text matches the pattern.
return function(pattern)
  local first, rest = pattern:match "^([^*]*)(.*)$"
  if rest == "" then return function(text) return text == pattern end end
  local pieces, last = {}, rest:match "([^*]*)$"
  for piece in rest:sub(1, #rest - #last):gmatch "[^*]+" do pieces[#pieces + 1] = piece end
  return function(text)
    if #text < #first + #last or text:sub(1, #first) ~= first or text:sub(#text - #last + 1) ~= last then return false end
    local at, stop = #first + 1, #text - #last
    for i = 1, #pieces do                -- each part is matched as early as possible, so the later parts have the most text left
      local from, to = text:find(pieces[i], at, true)
      if not from or to > stop then return false end
      at = to + 1
    end
    return true
  end
end
