-- docs/api.md, and the same as the manual page moonpool-lua(7), from the types that editors read: `./dev api` writes them, a house spec
-- compares. In the order of the files.
local is_program = arg and arg[0] and arg[0]:find "helpers/api%.lua$"

local api = { path = "docs/api.md", man_path = "man/moonpool-lua.7.scd" }

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
    local name, type, about = split((rest:gsub("^public (%S+%?? )", "%1"))) -- a scope, before a name that would be one
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

-- -- the manual page ---------------------------------------------------------------------------------------------------

local head = [[
moonpool-lua(7)

# NAME

moonpool-lua - what the Lua scripts of moonpool see

# DESCRIPTION

A script is a file below the folder that *scripts.path* of *moonpool.yaml*(5) names. Its folder says what it is: _tools_, _resources_, _prompts_,
_jobs_, _policy_, _auth_; _lib_ has what *require* finds, _\*\_spec.lua_ beside them is for *moonpool test*. Its path is its name:
_tools/orders/refund.lua_ is the tool orders\_refund. It returns what it adds, or a table of several by their names:

```
return tool {
  "Convert a temperature.",
  input = { degrees = t.number, to = t.one_of { "celsius", "fahrenheit", default = "celsius" } },
  function(args, call)
    if args.degrees > 1e6 then return nil, "nothing is that hot" end
    return args.to == "celsius" and (args.degrees - 32) / 1.8 or args.degrees * 1.8 + 32
  end,
}
```

Lua's own libraries are there but for io, debug, load and what leaves the process; a misspelt name is an error. Whatever waits looks as if it blocked,
and does not; when the call is called off, every *<close>* variable is closed and nothing more runs.

A handler fails in three ways. *return nil, "why"*, *fail "why"* and *try(value, why)*: the model reads the reason. *error(...)*, or a bug: the log
has file, line and trace, the client an id. *fail\_request*: an error of JSON-RPC for the client's program.

What follows is every name, with its types. _?_ behind a name or a type: it may be missing.
]]

local tail = [[

# SEE ALSO

*moonpool*(1), *moonpool.yaml*(5)
]]

local function plain(text) return (text:gsub("[\\*_~<`]", "\\%0")) end

-- A line of the page: what is in backquotes is bold.
local function bold(line)
  local parts, at = {}, 1
  for before, inside, after in line:gmatch "([^`]*)`([^`]*)`()" do
    parts[#parts + 1] = plain(before) .. "*" .. plain(inside) .. "*"
    at = after
  end
  return table.concat(parts) .. plain(line:sub(at))
end

--- The manual page, for scdoc.
function api.man()
  local out = { head }
  local is_inside = false
  for line in api.build():gmatch "([^\n]*)\n" do
    local level, title = line:match "^(##+) (.*)$"
    is_inside = is_inside or level ~= nil
    if level then
      out[#out + 1] = (level == "##" and "# " .. title:upper() or "## " .. plain((title:gsub("`", ""))))
    elseif is_inside then
      local item = line:match "^%- (.*)$"
      out[#out + 1] = item and "- " .. bold(item) or bold(line):gsub("^[#%[|%].]", "\\%0")
    end
  end
  out[#out + 1] = tail
  return (table.concat(out, "\n"):gsub("\n\n\n+", "\n\n"):gsub("\n*$", "\n"))
end

if is_program then io.write(arg[1] == "man" and api.man() or api.build()) end

return api
