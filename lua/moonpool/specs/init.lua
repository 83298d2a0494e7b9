-- Runs the specs of the operator's scripts in the Lua state of the scripts. The method "moonpool/specs" lists them or
-- runs one, as a call with the usual limits. Each run loads its file again, so specs share no state except that of the
-- scripts.

local host = require "moonpool.host"
local client_request = require "moonpool.calls.client_request"
local spec_client = require "moonpool.specs.spec_client"
local errors = require "moonpool.runtime.rpc_error"
local expect = require "moonpool.specs.expect"
local failure = require "moonpool.runtime.outcome"
local habits = require "moonpool.specs.habits"
local fakes = require "moonpool.specs.fakes"
local json = require "moonpool.json"
local library = require "moonpool.registry.require"
local notified = require "moonpool.specs.notified"
local problem = require "moonpool.runtime.diagnostic"
local sandbox = require "moonpool.registry.sandbox"
local syntax_hint = require "moonpool.registry.hint_syntax"

local specs = {}

notified.watch()

-- -- files -------------------------------------------------------------------------------------------------------------

-- Collects the `it` blocks of one file, each { name, run, befores, afters }.
local function collect(into)
  local block = { name = "", befores = {}, afters = {} }
  local names = {}

  local function check(word, name, f)
    if type(name) ~= "string" or type(f) ~= "function" then
      problem.raise(3, word .. " takes a name and a function", "as in " .. word .. "(\"…\", function() … end)")
    end
  end

  function names.describe(name, f)
    check("describe", name, f)
    local outer = block
    block = { name = outer.name .. name .. " ", befores = table.move(outer.befores, 1, #outer.befores, 1, {}),
      afters = table.move(outer.afters, 1, #outer.afters, 1, {}) }
    f()
    block = outer
  end

  function names.it(name, f)
    check("it", name, f)
    into[#into + 1] = { name = block.name .. name, run = f, befores = block.befores, afters = block.afters }
  end

  function names.before_each(f) table.insert(block.befores, f) end
  function names.after_each(f) table.insert(block.afters, 1, f) end
  return names
end

-- Formats the error of a failed spec.
local function error_text(value, text)
  local hint
  if failure.is_expected(value) then return "failed: " .. tostring(value.why) end
  if problem.is_trouble(value) then hint, value = value.hint, value.where .. value.what end
  hint = hint or problem.hint(tostring(value))
  local path, line, what = problem.split(tostring(value))
  if not path then return tostring(value) end
  return problem.text(path, line, what, hint, path:find "_spec%.lua$" and text or nil)
end

local function open(script, call, row)
  local env, base = sandbox.new(library.find, script.path)
  local list = {}
  habits.add(base)
  for name, value in pairs(collect(list)) do base[name] = value end
  for name, value in pairs(spec_client(call, row)) do base[name] = value end
  base.assert, base.fake, base.notified = expect, fakes.fake, notified.list
  local chunk, why, hint = host.script.load(script.text, "@" .. host.script.root .. "/" .. script.path, env)
  if not chunk then
    local path, line, what = problem.split(why)
    return nil, problem.text(path or script.path, line, what, hint or syntax_hint(what, line, script.text), script.text)
  end
  local ok, value = pcall(chunk)
  if not ok then return nil, error_text(value, script.text) end
  return list
end

local function run(spec, text)
  local failed
  local function step(f)
    local ok, value = pcall(f)
    if not ok and not failed then failed = error_text(value, text) end
    return ok
  end
  local is_ready = true
  for _, f in ipairs(spec.befores) do is_ready = is_ready and step(f) end
  if is_ready then step(spec.run) end
  for _, f in ipairs(spec.afters) do step(f) end
  return failed
end

local function is_wanted(path, wanted)
  if not wanted or #wanted == 0 then return true end
  for _, place in ipairs(wanted) do
    if place == "" or path == place or path:sub(1, #place + 1) == place .. "/" then return true end
  end
  return false
end

local function list(call, params, row)
  local files = json.array {}
  for _, script in ipairs(host.script.list) do
    if script.path:find "_spec%.lua$" and is_wanted(script.path, params.below) then
      local found, why = open(script, call, row)
      local names = json.array {}
      for i, spec in ipairs(found or {}) do names[i] = spec.name end
      files[#files + 1] = { path = script.path, specs = names, why = why }
    end
  end
  return { files = files, root = host.script.root, resultType = "complete" }
end

--- Handles the method "moonpool/specs": { below = paths } lists specs, { path, index } runs one.
function specs.answer(call, params, row)
  if not params.path then return list(call, params, row) end
  for _, script in ipairs(host.script.list) do
    if script.path == params.path then
      local function reset(_, _, is_begun)
        fakes.reset()
        notified.begin(is_begun == true)
      end
      reset(nil, nil, true)
      client_request.through(call, fakes.ask)
      local guard <close> = setmetatable({}, { __close = reset })               -- luacheck: ignore 211
      local found, why = open(script, call, row)
      local spec = found and found[params.index]
      if spec then why = run(spec, script.text) end
      return { failed = why or not spec and "the spec no longer exists" or nil, resultType = "complete" }
    end
  end
  return nil, errors.new("invalid_params", "there is no such spec")
end

return specs
