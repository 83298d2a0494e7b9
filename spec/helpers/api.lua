-- docs/api.md from the types that editors read: `./dev api` writes it, a house spec compares. In the order of the files.
local is_program = arg and arg[0] and arg[0]:find "helpers/api%.lua$"

local api = { path = "docs/api.md" }

local FILES <const> = {
  { "lua/types/moonpool.d.lua", "What scripts see" }, { "lua/types/moonpool_spec.d.lua", "What specs beside them see, too" },
}

-- "name type  text" of a parameter or field, where a type may have spaces in brackets and after ":", "," and "|".
local function split(rest)
  local name, at = rest:match "^(%S+)%s+()"
  if not name then return rest, "", "" end
  local depth, stop = 0, #rest + 1
  for i = at, #rest do
    local c = rest:sub(i, i)
    if c:find "[%(%{%[<]" then depth = depth + 1 elseif c:find "[%)%}%]>]" then depth = depth - 1 end
    if depth <= 0 and c == " " and not rest:sub(i - 1, i - 1):find "[:,|]" and not rest:sub(i + 1, i + 1):find "|" then
      stop = i
      break
    end
  end
  return name, rest:sub(at, stop - 1), rest:sub(stop):match "^%s*(.-)%s*$"
end

local function code(text) return "`" .. text .. "`" end

local function entry(tag, rest)
  if tag == "field" or tag == "param" then
    local name, type, about = split(rest)
    return ("- %s %s%s"):format(code(name), code(type), about ~= "" and ": " .. about or "")
  elseif tag == "return" then
    return "- gives " .. code((rest:gsub("%s+", " ")))
  elseif tag == "overload" then
    return "- is called as " .. code(rest)
  end
end

local function of_file(path, write)
  local text, list = {}, {}
  local function flush(title)
    write("### " .. title)
    write ""
    if #text > 0 then write(table.concat(text, "\n") .. "\n") end
    if #list > 0 then write(table.concat(list, "\n") .. "\n") end
    text, list = {}, {}
  end
  local class
  for line in io.lines(path) do
    local tag, rest = line:match "^%-%-%-@(%w+)%s*(.*)$"
    local header = line:match "^function (.+) end" or line:match "^(%l[%w_.]*) = "
    if tag == "class" then
      if class then flush(class) end
      class = code(rest)
    elseif tag == "alias" then
      local name, meaning = rest:match "^(%S+)%s+(.*)$"
      if class then
        flush(class)
        class = nil
      end
      list[#list + 1] = "- is " .. code(meaning)
      flush(code(name))
    elseif tag then
      list[#list + 1] = entry(tag, rest)
    elseif line:find "^%-%-%- " then
      if class then
        flush(class)
        class = nil
      end
      text[#text + 1] = line:sub(5)
    elseif header then
      flush(code((header:gsub("^%u%l+:", "call:"):gsub("^HttpAnswer:", "answer:"):gsub("^HttpStream:", "stream:"))))
      class = nil
    elseif class then
      flush(class)
      class = nil
    end
  end
  if class then flush(class) end
end

--- The page.
function api.build()
  local out = {}
  local function write(line) out[#out + 1] = line end
  write "# Every name of a script\n"
  write "Made by `./dev api` from `lua/types/`, which editors read and `moonpool types` writes. `?` behind a name or type: it may be missing.\n"
  for _, file in ipairs(FILES) do
    write("## " .. file[2] .. "\n")
    of_file(file[1], write)
  end
  return (table.concat(out, "\n"):gsub("\n\n\n+", "\n\n"):gsub("\n*$", "\n"))
end

if is_program then io.write(api.build()) end

return api
