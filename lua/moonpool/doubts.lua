-- What `moonpool check` warns of: who cannot do what (unreachable); and names that functions use and no script knows, which
-- would fail when they are reached, and that may be long after the load.
-- Read from the compiled file, so nothing is guessed: only the globals of the file itself count, and a file that gives its
-- environment away, or gives itself names, is left alone where it does.

local host = require "moonpool.host"
local problem = require "moonpool.problem"
local sandbox = require "moonpool.sandbox"
local suggest = require "moonpool.suggest"
local unreachable = require "moonpool.unreachable"

local OP_GETUPVAL, OP_GETTABUP, OP_SETTABUP = 9, 11, 15

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

-- One function: what it reads and sets of the file's own environment. `outer` tells which upvalues of the enclosing function are that.
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
      found.read[#found.read + 1] = { name = names[c + 1], line = lines[i] }
    elseif op == OP_SETTABUP and is_env[a] then
      if names[b + 1] then found.set[names[b + 1]] = true end
    elseif op == OP_GETUPVAL and is_env[b] then
      found.is_given_away = true
    end
  end
end

-- What each opcode is called here is what this Lua calls it; else nothing is said.
local function is_known()
  local found = { read = {}, set = {} }
  local bytes = sandbox.dump(assert(load("local x = ...\nreturn function() y = z end", "=probe")))
  local ok = pcall(function() scan(setmetatable({ bytes = bytes, at = 33 }, reader), nil, found) end)
  return ok and #found.read == 1 and found.read[1].name == "z" and found.read[1].line == 2 and found.set.y
end

local function look(script, list)
  local chunk = host.load(script.text, "@" .. script.path, {})
  if not chunk then return end
  local found = { read = {}, set = {} }
  local fine = pcall(scan, setmetatable({ bytes = sandbox.dump(chunk), at = 33 }, reader), nil, found)
  if not fine or found.is_given_away or script.text:find("_G", 1, true) then return end
  local env, known = sandbox.new(function() end, script.path)
  local told = { _G = env, _ENV = env }
  table.sort(found.read, function(a, b) return a.line < b.line end)
  for _, use in ipairs(found.read) do
    local name = use.name
    if name and rawget(known, name) == nil and not found.set[name] and not told[name] then
      told[name] = true
      list[#list + 1] = problem.text(host.root .. "/" .. script.path, use.line, "unknown name '" .. name .. "'",
        suggest.hint(name, known) or "a script's own names begin with 'local'", script.text)
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
