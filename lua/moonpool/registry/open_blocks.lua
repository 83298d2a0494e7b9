-- Finds the block that probably lacks its `end`, when Lua's parser noticed only later: the block whose keyword is
-- indented further than the `end` that closed it.

local opens = { ["function"] = true, ["if"] = true, ["do"] = true, ["repeat"] = true }
local closes = { ["end"] = true, ["until"] = true }

-- The position after the string, comment or long bracket that begins at `at`; nil where none begins.
local function skip(text, at)
  local first = text:sub(at, at)
  local from = text:find("^%-%-", at) and at + 2 or at
  local level = text:match("^%[(=*)%[", from)
  if level and (from > at or first == "[") then
    local _, last = text:find("]" .. level .. "]", from, true)
    return last or #text
  end
  if from > at then return (text:find("\n", at, true) or #text + 1) - 1 end
  if first ~= '"' and first ~= "'" then return nil end
  local i = at + 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == "\\" then i = i + 1 elseif c == first or c == "\n" then return i end
    i = i + 1
  end
  return #text
end

--- The text with its strings and comments replaced by spaces, so that each byte and line end keeps its position.
local function bare(text)
  local out, at = {}, 1
  while at <= #text do
    local stop = text:find("[\"'%-%[]", at)
    if not stop then break end
    local last = skip(text, stop)
    out[#out + 1] = text:sub(at, stop - 1)
    out[#out + 1] = last and text:sub(stop, last):gsub("[^\n]", " ") or text:sub(stop, stop)
    at = (last or stop) + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

--- The line and keyword of the block that is probably not closed, up to line `last` of `text`; or nil.
local function find(text, last)
  local stack, n, suspect = {}, 0, nil
  for line in (bare(text) .. "\n"):gmatch "(.-)\r?\n" do
    n = n + 1
    if n > last then break end
    local indent = #line:match "^%s*"
    for word in line:gmatch "%f[%w_][%a_][%w_]*" do
      if opens[word] then
        stack[#stack + 1] = { word = word, line = n, indent = indent }
      elseif closes[word] and stack[1] then
        local top = table.remove(stack)
        if indent < top.indent and top.line < n then suspect = suspect or top end
      end
    end
  end
  return suspect or stack[#stack]
end

return { bare = bare, find = find }
