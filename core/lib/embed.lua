-- embed.lua: makes a module ready for the binary: `lua5.4 embed.lua FROM TO [text]`.
-- It is compiled, with its line numbers and the names of its upvalues, which traces and errors show, but not the names of
-- its local variables: they take a tenth of the bytecode, and a ninth of the time of a start. The format is that of
-- ldump.c of Lua 5.4.
-- Or, with `text`, it loses its comments, and spaces that separate nothing.
local from, to, form = table.unpack(arg)

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function write(made)
  local file = assert(io.open(to, "wb"))
  file:write(made)
  assert(file:close())
end

-- -- as text ------------------------------------------------------------------------------------------------------------

local ALONE <const> = [=[[(){}=,;%]+*/%%#:&|"']]=] -- beside these a space separates nothing, but for one after ">"

-- A token or comment at `at`: its last byte, and what is left of it.
local function token(text, at)
  local from_comment = text:find("^%-%-", at) and at + 2
  local level = text:match("^%[(=*)%[", from_comment or at)
  if level then
    local _, last = assert(text:find("]" .. level .. "]", at, true))
    return last, from_comment and text:sub(at, last):gsub("[^\n]", "") or text:sub(at, last)
  elseif from_comment then
    return text:find("\n", at, true) - 1, ""
  end
  local quote = text:match("^[\"']", at)
  local last = at
  if quote then
    repeat last = last + (text:sub(last, last) == "\\" and 2 or 1) until text:sub(last, last) == quote
  else
    last = select(2, text:find("^[%w_]+", at)) or select(2, text:find("^%s+", at)) or at
  end
  return last, text:sub(at, last)
end

local function without_comments(text)
  local out, at = {}, 1
  while at <= #text do
    local last, left = token(text, at)
    out[#out + 1], at = left, last + 1
  end
  -- spaces are tokens of their own here, so that none inside of a string is touched
  for i, left in ipairs(out) do
    if left:find "^%s" then
      local before, after = out[i - 1] or "", out[i + 1] or ""
      local has_use = before:find ">$" or not (before:find(ALONE .. "$") or after:find("^" .. ALONE) or before == "" or after == "")
      out[i] = left:find "\n" and left:gsub("[^\n]", "") or has_use and " " or ""
    end
  end
  return table.concat(out)
end

if form == "text" then
  local text = read(from)
  local made = without_comments(text)
  local name = "@" .. from
  assert(string.dump(assert(load(made, name, "t"))) == string.dump(assert(load(text, name, "t"))), from .. " means something else without its comments")
  return write(made)
end

-- -- compiled -----------------------------------------------------------------------------------------------------------

local HEADER <const> = "^\27Lua\x54\0\x19\x93\r\n\x1a\n\4\8\8................." -- the header of bytecode, and one byte: the number of upvalues

local code, at
local out = {}

-- Copies `count` bytes.
local function copy(count)
  out[#out + 1] = code:sub(at, at + count - 1)
  at = at + count
end

-- Reads a number, in groups of seven bits, of which the last has the highest bit.
local function read_number()
  local value = 0
  repeat
    local byte = code:byte(at)
    value, at = value << 7 | byte & 0x7f, at + 1
  until byte >= 0x80
  return value
end

local function copy_number()
  local start = at
  local value = read_number()
  out[#out + 1] = code:sub(start, at - 1)
  return value
end

-- A text is its length and one, or 0 for none.
local function copy_text()
  local size = copy_number()
  copy(math.max(size - 1, 0))
end

local function skip_text()
  local size = read_number()
  at = at + math.max(size - 1, 0)
end

local SIZES <const> = { [0x00] = 0, [0x01] = 0, [0x11] = 0, [0x03] = 8, [0x13] = 8 } -- nil, false, true, integer, float
local TEXTS <const> = { [0x04] = true, [0x14] = true }

local function copy_constant()
  local kind = code:byte(at)
  copy(1)
  if TEXTS[kind] then copy_text() else copy(assert(SIZES[kind], "a constant of an unknown kind")) end
end

local function copy_function()
  copy_text() -- the name of the file
  copy_number() -- the function's first line
  copy_number() -- the function's last line
  copy(3) -- parameters, varargs, size of the stack
  copy(4 * copy_number())
  for _ = 1, copy_number() do copy_constant() end
  copy(3 * copy_number()) -- upvalues
  for _ = 1, copy_number() do copy_function() end
  copy(copy_number()) -- a line for each instruction, as a difference
  for _ = 1, copy_number() do
    copy_number()
    copy_number()
  end
  for _ = 1, read_number() do
    skip_text()
    read_number()
    read_number()
  end
  out[#out + 1] = "\x80" -- no local variables
  for _ = 1, copy_number() do copy_text() end
end

code = string.dump(assert(load(read(from), "@" .. from, "t")))
local _, last = code:find(HEADER)
at = 1
copy(assert(last, "this is not the bytecode of Lua 5.4"))
copy_function()
assert(at == #code + 1, "the bytecode does not end where its function ends")
local made = table.concat(out)
assert(load(made, from, "b"))
write(made)
