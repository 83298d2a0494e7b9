-- Specs of the operator's own scripts, run where the scripts run: "moonpool/specs" lists them, or runs one, as a call like any
-- other with its limits. Each run reads its file anew, so that specs share nothing but what the scripts keep.

local host = require "moonpool.host"
local asking = require "moonpool.asking"
local errors = require "moonpool.errors"
local expect = require "moonpool.specs.expect"
local failure = require "moonpool.failure"
local fakes = require "moonpool.specs.fakes"
local json = require "moonpool.json"
local library = require "moonpool.library"
local problem = require "moonpool.problem"
local sandbox = require "moonpool.sandbox"

local specs = {}

-- -- what specs call ---------------------------------------------------------------------------------------------------

local function plain(value) return value == nil and json.object {} or json.object(json.decode(json.encode(value))) end

local function texts(content)
  local told = {}
  for _, item in ipairs(content or {}) do told[#told + 1] = item.text or item.resource and item.resource.text end
  return table.concat(told, "\n")
end

-- call, read and prompt for the request `call` in the revision of `row`.
local function callers(call, row)
  local function ask(method, params)
    asking.forget(call)
    local result, err = row.methods[method].run(call, params, row)
    if not result then return nil, err.message end
    return json.decode(json.encode(result))
  end
  local made = {}

  --- call(name, arguments): { text, structured, content }; or nil and why, as the model reads it.
  function made.call(name, arguments)
    local result, why = ask("tools/call", { name = name, arguments = plain(arguments) })
    if not result then return nil, why end
    if result.isError then return nil, texts(result.content) end
    return { text = texts(result.content), structured = result.structuredContent, content = result.content }
  end

  --- read(uri): { text, contents }; or nil and why.
  function made.read(uri)
    local result, why = ask("resources/read", { uri = uri })
    if not result then return nil, why end
    return { text = result.contents[1] and result.contents[1].text, contents = result.contents }
  end

  --- get_prompt(name, arguments): the messages; or nil and why.
  function made.get_prompt(name, arguments)
    local result, why = ask("prompts/get", { name = name, arguments = plain(arguments) })
    if not result then return nil, why end
    return result.messages
  end

  return made
end

-- -- files -------------------------------------------------------------------------------------------------------------

-- Everything `it` of one file: { name, run, befores, afters }.
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

-- What a spec failed with, for a person.
local function told(value, text)
  local hint
  if failure.is_expected(value) then return "failed: " .. tostring(value.why) end
  if problem.is_trouble(value) then hint, value = value.hint, value.where .. value.what end
  local path, line, what = problem.split(tostring(value))
  if not path then return tostring(value) end
  return problem.text(path, line, what, hint, path:find "_spec%.lua$" and text or nil)
end

local function open(script, call, row)
  local env, base = sandbox.new(library.find, script.path)
  local list = {}
  for name, value in pairs(collect(list)) do base[name] = value end
  for name, value in pairs(callers(call, row)) do base[name] = value end
  base.assert, base.fake = expect, fakes.fake
  local chunk, why, hint = host.load(script.text, "@" .. host.root .. "/" .. script.path, env)
  if not chunk then
    local path, line, what = problem.split(why)
    return nil, problem.text(path or script.path, line, what, hint, script.text)
  end
  local ok, value = pcall(chunk)
  if not ok then return nil, told(value, script.text) end
  return list
end

local function run(spec, text)
  local failed
  local function step(f)
    local ok, value = pcall(f)
    if not ok and not failed then failed = told(value, text) end
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
  for _, script in ipairs(host.scripts) do
    if script.path:find "_spec%.lua$" and is_wanted(script.path, params.below) then
      local found, why = open(script, call, row)
      local names = json.array {}
      for i, spec in ipairs(found or {}) do names[i] = spec.name end
      files[#files + 1] = { path = script.path, specs = names, why = why }
    end
  end
  return { files = files, root = host.root, resultType = "complete" }
end

--- Answers "moonpool/specs": { below = paths } lists, { path, index } runs one.
function specs.answer(call, params, row)
  if not params.path then return list(call, params, row) end
  for _, script in ipairs(host.scripts) do
    if script.path == params.path then
      fakes.reset()
      asking.through(call, fakes.ask)
      local guard <close> = setmetatable({}, { __close = fakes.reset })               -- luacheck: ignore 211
      local found, why = open(script, call, row)
      local spec = found and found[params.index]
      if spec then why = run(spec, script.text) end
      return { failed = why or not spec and "it is gone" or nil, resultType = "complete" }
    end
  end
  return nil, errors.new("invalid_params", "there is no such spec")
end

return specs
