-- Warns of functions that return nothing where their value matters: at run time once for each thing and load of the
-- scripts, and in `moonpool check` if a function can never return a value.

local bytecode = require "moonpool.runtime.bytecode"
local host = require "moonpool.host"
local sandbox_dump = string.dump

local silent = {}

local OP_TAILCALL, OP_RETURN, OP_RETURN1 = 69, 70, 72

--- Logs `event` once for `thing`, which has a path below the scripts' folder.
function silent.warn(thing, event, fields, hint)
  if thing.has_silent_warning then return end
  thing.has_silent_warning = true
  fields.file, fields.hint = host.script.root .. "/" .. thing.path, hint
  host.log.write("warn", event, fields)
end

-- True if a compiled function has an instruction that returns values; and the number of its parameters.
local function read(bytes)
  local r = bytecode.reader(bytes)
  r:text()
  for _ = 1, 2 do r:size() end                -- the first and the last line
  local params = r:byte()
  r:skip(2)
  for _ = 1, r:size() do
    local word = r:word()
    local op, b = word & 0x7f, word >> 16 & 0xff
    if op == OP_TAILCALL or op == OP_RETURN1 or op == OP_RETURN and b ~= 1 then return true, params end
  end
  return false, params
end

-- True if this Lua's opcodes are those above; otherwise no function counts as silent.
local function is_known()
  local function probe(text)
    local ok, returns, params = pcall(read, sandbox_dump(load(text)()))
    return ok and returns, params
  end
  local one, params = probe "return function(a, b) return a end"
  return one and params == 2 and probe "return function(f) return f() end" and probe "return function(...) return ... end"
    and probe "return function(a) return a, 1 end" and not probe "return function(f) f() end" and not probe "return function(f) if f then return end f() end"
end

--- True if a Lua function with at least `params` parameters can never return a value.
function silent.is_silent(f, params)
  if type(f) ~= "function" or not is_known() then return false end
  local ok, returns, count = pcall(function() return read(sandbox_dump(f)) end)
  return ok and not returns and count >= params
end

return silent
