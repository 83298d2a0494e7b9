-- JSON as editors write it: with comments and commas before closing brackets. Returns the text without them, for a JSON
-- decoder.

return function(text)
  local out, i = {}, 1
  text = text:gsub("^\239\187\191", "")
  while i <= #text do
    local c = text:sub(i, i)
    if c == '"' then
      local j = i + 1
      while j <= #text and text:sub(j, j) ~= '"' do j = j + (text:sub(j, j) == "\\" and 2 or 1) end
      out[#out + 1] = text:sub(i, j)
      i = j + 1
    elseif c == "/" and text:sub(i + 1, i + 1) == "/" then
      i = text:find("\n", i, true) or #text + 1
    elseif c == "/" and text:sub(i + 1, i + 1) == "*" then
      local _, last = text:find("*/", i + 2, true)
      i = (last or #text) + 1
      out[#out + 1] = " "
    elseif c == "]" or c == "}" then
      local n = #out                                   -- a comma before the bracket, behind white space
      while n > 0 and out[n]:find "^%s+$" do n = n - 1 end
      if out[n] == "," then out[n] = "" end
      out[#out + 1] = c
      i = i + 1
    else
      local run = text:match("^%s+", i) or text:match('^[^"/,%]}%s]+', i) or c
      out[#out + 1] = run
      i = i + #run
    end
  end
  return table.concat(out)
end
