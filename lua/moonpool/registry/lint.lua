-- Collects the warnings of `moonpool check`: nothing is served, nothing can reach a thing (lint_access), unknown
-- formats (lint_schema), assigned globals, and unknown names, also fields of a library (`os.execute`), which fail only
-- when a call reaches them. Names are read from the compiled file, so only globals of that file count. A file that
-- passes its environment to other code is not checked.

local host = require "moonpool.host"
local bytecode = require "moonpool.runtime.bytecode"
local cached_file = require "moonpool.runtime.cached_file"
local job = require "moonpool.things.job"
local pins = require "moonpool.upstream.pins"
local policy = require "moonpool.things.policy"
local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"
local sandbox = require "moonpool.registry.sandbox"
local silent = require "moonpool.things.silent"
local schema_doubts = require "moonpool.registry.lint_schema"
local time_doubts = require "moonpool.registry.lint_time"
local sorted = require "moonpool.runtime.sorted_keys"
local unreachable = require "moonpool.registry.lint_access"

local OP_GETUPVAL, OP_GETTABUP, OP_GETFIELD, OP_SETTABUP, OP_SETFIELD, OP_EQK, OP_TEST, OP_TESTSET = 9, 11, 14, 15, 18, 60, 66, 67

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

-- The field that the instruction after `i` reads from the value in register `from`; and true if the script only tests
-- whether the field exists.
local function field_read(code, i, from, names)
  local word = code[i + 1]
  if word & 0x7f ~= OP_GETFIELD or word >> 16 & 0xff ~= from then return nil end
  local after = code[i + 2] & 0x7f
  return names[(word >> 24 & 0xff) + 1], after == OP_TEST or after == OP_TESTSET or after == OP_EQK
end

-- Collects from one function the names that it reads and sets in the environment of its file, and the fields that it
-- sets or tests anywhere. `outer` says which upvalues of the enclosing function hold that environment.
local function scan(r, outer, found)
  r:text()
  local first = r:size()
  r:size()
  r:skip(3)
  local code = {}
  for i = 1, r:size() do code[i] = r:word() end
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
      local name = names[b + 1]
      if name and not found.set[name] then found.set[name] = { line = lines[i] } end
    elseif op == OP_SETFIELD then
      found.fields[names[b + 1]] = true
    elseif op == OP_GETUPVAL and is_env[b] then
      found.is_given_away = true
    end
  end
end

-- True if this Lua's opcodes are those named above; otherwise nothing is checked.
local function is_known()
  local found = { read = {}, set = {}, fields = {} }
  local bytes = sandbox.dump(assert(load("local x = ...\nreturn function(x) y = z.x + (z.y and 1 or z.v == nil) x.w = y end", "=probe")))
  local ok = pcall(function() scan(bytecode.reader(bytes), nil, found) end)
  local read = found.read[1]
  return ok and #found.read == 4 and read.name == "z" and read.field == "x" and read.line == 2 and found.set.y and
    found.fields.w and found.fields.y and found.fields.v and not found.fields.x
end

-- A warning about an unknown name that a script reads: the text, and a function that returns the hint.
local function unknown_of(use, known, found, text)
  if not use.name or found.set[use.name] then return nil end
  local value = rawget(known, use.name)
  if value == nil then return use.name, function() return sandbox.hint(use.name, known, nil, problem.line(text, use.line)) end end
  if not use.field or found.fields[use.field] or type(value) ~= "table" then return nil end
  if getmetatable(value) ~= nil or value[use.field] ~= nil then return nil end
  return use.name .. "." .. use.field, function() return sandbox.hint(use.field, value, use.name) end
end

local function look(script, list)
  local chunk = host.script.load(script.text, "@" .. script.path, {})
  if not chunk then return end
  local found = { read = {}, set = {}, fields = {} }
  local fine = pcall(scan, bytecode.reader(sandbox.dump(chunk)), nil, found)
  if not fine or found.is_given_away or script.text:find("_G", 1, true) then return end
  local env, known = sandbox.new(function() end, script.path)
  local done = { _G = env, _ENV = env }
  local doubts = {}
  local function put(line, what, hint)
    doubts[#doubts + 1] = { line = line, at = #doubts, text = problem.of_script(script.path, line, what, hint) }
  end
  table.sort(found.read, function(a, b) return a.line < b.line or a.line == b.line and a.at < b.at end)
  for _, use in ipairs(found.read) do
    local name, hint = unknown_of(use, known, found, script.text)
    if name and not done[name] then
      done[name] = true
      put(use.line, "unknown name '" .. name .. "'", hint())
    end
  end
  for _, name in ipairs(sorted(found.set)) do
    if rawget(known, name) == nil then
      put(found.set[name].line, "'" .. name .. "' is assigned and was never declared: it is a global of this file, which all calls share",
        "write 'local " .. name .. "' where it begins")
    end
  end
  table.sort(doubts, function(a, b) return a.line < b.line or a.line == b.line and a.at < b.at end)
  for _, doubt in ipairs(doubts) do list[#list + 1] = doubt.text end
end

-- The warning that nothing is served: most likely the scripts are in another folder.
local function check_served(list)
  for kind in pairs(registry.kinds) do
    if next((registry.everything(kind))) ~= nil then return end
  end
  if next(job.all()) ~= nil or (host.config.upstreams or {})[1] then return end
  list[#list + 1] = "nothing is served: " .. host.script.root .. "/ has no tools, resources or prompts\n  hint: a tool is a file in "
    .. host.script.root .. "/tools/: `moonpool new tool greet` writes one"
end

-- The warning about a policy that takes `next` and never returns a value: it empties every result.
local function check_policies(list)
  for _, row in ipairs(policy.all()) do
    if silent.is_silent(row.handler, 2) then
      list[#list + 1] = problem.of_script(row.path, debug.getinfo(row.handler, "S").linedefined,
        "the policy '" .. row.name .. "' never returns a value: its clients get empty results", "write 'return next(call)'")
    end
  end
end

--- All warnings about the scripts, as texts with a blank line between them.
local function check_pins(list)
  local count = pins.old_count()
  if count == 0 then return end
  list[#list + 1] = ("%s: %d %s of an older form, which leaves out `_meta`\n  hint: `moonpool lock` shows what is in it, and renews them"):format(
    host.config.upstream_lock_path or "moonpool.lock", count, count == 1 and "line is" or "lines are")
end

return function()
  local list = unreachable()
  cached_file.doubts(list)
  check_pins(list)
  check_served(list)
  schema_doubts(list)
  time_doubts(list)
  check_policies(list)
  if not host.script.trust_full and not host.script.is_confined and is_known() then
    for _, script in ipairs(host.script.list) do
      if not script.path:find "_spec%.lua$" then look(script, list) end
    end
  end
  return table.concat(list, "\n\n") .. (list[1] and "\n" or "")
end
