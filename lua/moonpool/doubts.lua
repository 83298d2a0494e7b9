-- What `moonpool check` warns of: who cannot do what (unreachable); and names that functions use and no script knows, also those
-- in a library (`os.execute`), which would fail when they are reached, and that may be long after the load.
-- Read from the compiled file, so nothing is guessed: only the globals of the file itself count, and a file that gives its
-- environment away, or gives itself names, is left alone where it does.

local host = require "moonpool.host"
local problem = require "moonpool.problem"
local sandbox = require "moonpool.sandbox"
local unreachable = require "moonpool.unreachable"

local OP_GETUPVAL, OP_GETTABUP, OP_GETFIELD, OP_SETTABUP, OP_SETFIELD, OP_EQK, OP_TEST, OP_TESTSET = 9, 11, 14, 15, 18, 60, 66, 67

-- A compiled chunk of Lua 5.4, read from its start.
local reader = {}
reader.__index = reader

function reader:byte()
  self.at = self.at + 1
  return self.bytes:byte(self.at - 1)
end

function reader:size()
  local n = 0
  while true do
    local byte = self:byte()
    n = n << 7 | byte & 0x7f
    if byte & 0x80 ~= 0 then return n end
  end
end

function reader:skip(count) self.at = self.at + count end

function reader:text()
  local size = self:size()
  if size == 0 then return nil end
  self:skip(size - 1)
  return self.bytes:sub(self.at - size + 1, self.at - 1)
end

local function constants(r)
  local list = {}
  for i = 1, r:size() do
    local kind = r:byte()
    if kind == 0x04 or kind == 0x14 then
      list[i] = r:text()
    elseif kind == 0x03 or kind == 0x13 then
      r:skip(8)
    end
  end
  return list
end

-- The line of each instruction.
local function lines_of(r, first)
  local steps, absolute = {}, {}
  for i = 1, r:size() do
    local step = r:byte()
    steps[i] = step < 128 and step or step - 256
  end
  for _ = 1, r:size() do
    local at = r:size()
    absolute[at + 1] = r:size()
  end
  local lines, line = {}, first
  for i, step in ipairs(steps) do
    line = step == -128 and absolute[i] or line + step
    lines[i] = line
  end
  return lines
end

-- The field that the instruction behind that at `i` reads of what is in the register `from`; and whether the script does so only to
-- know if it is there.
local function field_read(code, i, from, names)
  local word = code[i + 1]
  if word & 0x7f ~= OP_GETFIELD or word >> 16 & 0xff ~= from then return nil end
  local after = code[i + 2] & 0x7f
  return names[(word >> 24 & 0xff) + 1], after == OP_TEST or after == OP_TESTSET or after == OP_EQK
end

-- One function: what it reads and sets of the file's own environment, and which fields it sets or asks for,
-- wherever. `outer` tells which upvalues of the enclosing function are that environment.
local function scan(r, outer, found)
  r:text()
  local first = r:size()
  r:size()
  r:skip(3)
  local code = {}
  for i = 1, r:size() do code[i] = string.unpack("<I4", r.bytes, r.at) r:skip(4) end
  local names, is_env = constants(r), {}
  for i = 0, r:size() - 1 do
    local in_stack, index = r:byte(), r:byte()
    r:skip(1)
    if not outer then
      is_env[i] = i == 0
    else
      is_env[i] = in_stack == 0 and outer[index]
    end
  end
  for _ = 1, r:size() do scan(r, is_env, found) end
  local lines = lines_of(r, first)
  for _ = 1, r:size() do r:text() r:size() r:size() end
  for _ = 1, r:size() do r:text() end
  for i, word in ipairs(code) do
    local op, a, b, c = word & 0x7f, word >> 7 & 0xff, word >> 16 & 0xff, word >> 24 & 0xff
    if op == OP_GETTABUP and is_env[b] then
      local field, is_question = field_read(code, i, a, names)
      if is_question then found.fields[field] = true end
      found.read[#found.read + 1] = { name = names[c + 1], field = field, line = lines[i], at = i }
    elseif op == OP_SETTABUP and is_env[a] then
      if names[b + 1] then found.set[names[b + 1]] = true end
    elseif op == OP_SETFIELD then
      found.fields[names[b + 1]] = true
    elseif op == OP_GETUPVAL and is_env[b] then
      found.is_given_away = true
    end
  end
end

-- What each opcode is called here is what this Lua calls it; else nothing is said.
local function is_known()
  local found = { read = {}, set = {}, fields = {} }
  local bytes = sandbox.dump(assert(load("local x = ...\nreturn function(x) y = z.x + (z.y and 1 or z.v == nil) x.w = y end", "=probe")))
  local ok = pcall(function() scan(setmetatable({ bytes = bytes, at = 33 }, reader), nil, found) end)
  local read = found.read[1]
  return ok and #found.read == 4 and read.name == "z" and read.field == "x" and read.line == 2 and found.set.y and
    found.fields.w and found.fields.y and found.fields.v and not found.fields.x
end

-- What is unknown about a name that is read: its text and what to do about it.
local function unknown_of(use, known, found)
  if not use.name or found.set[use.name] then return nil end
  local value = rawget(known, use.name)
  if value == nil then return use.name, sandbox.hint(use.name, known) end
  if not use.field or found.fields[use.field] or type(value) ~= "table" then return nil end
  if getmetatable(value) ~= nil or value[use.field] ~= nil then return nil end
  return use.name .. "." .. use.field, sandbox.hint(use.field, value, use.name)
end

local function look(script, list)
  local chunk = host.load(script.text, "@" .. script.path, {})
  if not chunk then return end
  local found = { read = {}, set = {}, fields = {} }
  local fine = pcall(scan, setmetatable({ bytes = sandbox.dump(chunk), at = 33 }, reader), nil, found)
  if not fine or found.is_given_away or script.text:find("_G", 1, true) then return end
  local env, known = sandbox.new(function() end, script.path)
  local told = { _G = env, _ENV = env }
  table.sort(found.read, function(a, b) return a.line < b.line or a.line == b.line and a.at < b.at end)
  for _, use in ipairs(found.read) do
    local name, hint = unknown_of(use, known, found)
    if name and not told[name] then
      told[name] = true
      list[#list + 1] = problem.text(host.root .. "/" .. script.path, use.line, "unknown name '" .. name .. "'", hint, script.text)
    end
  end
end

--- What is doubtful in the scripts, as texts a blank line apart.
return function()
  local list = unreachable()
  if not host.trust_full and is_known() then
    for _, script in ipairs(host.scripts) do
      if not script.path:find "_spec%.lua$" then look(script, list) end
    end
  end
  return table.concat(list, "\n\n") .. (list[1] and "\n" or "")
end
