-- require in scripts: scripts/lib/x.lua, run once per VM, and "cjson". Everything in lib/ runs at load, so a call only looks up.

local host = require "moonpool.host"
local problem = require "moonpool.problem"
local sandbox = require "moonpool.sandbox"
local suggest = require "moonpool.suggest"

local library = {}

local files, order = {}, {}       -- name -> { path, chunk, state, value }
local running = {}                -- names being run now, outermost first

-- Called last by find, which is called by a script's require: so the script is 3 levels up.
local function run(file, name)
  if file.state == "running" then
    local first = 1
    while running[first] ~= name do first = first + 1 end
    local circle = table.concat(running, " -> ", first) .. " -> " .. name
    problem.raise(3, "libraries require each other: " .. circle, "move what both need into a third file")
  end
  if file.state == "done" then return file.value end
  if not file.chunk then problem.raise(3, "library '" .. name .. "' did not load") end
  file.state = "running"
  running[#running + 1] = name
  local ok, value = host.guarded(file.chunk, file.on_error)
  running[#running] = nil
  if not ok then
    file.state = nil
    file.chunk = nil
    error(value, 0)
  end
  file.state, file.value = "done", value == nil and true or value
  return file.value
end

-- Each script has a cjson of its own: its settings can be changed.
local function cjson()
  local module, why = host.cjson()
  if not module then problem.raise(3, "cjson is not available: " .. tostring(why), "json is always there") end
  if module.new then return module.new() end
  local made = {}
  for key, value in pairs(module) do made[key] = value end
  return made
end

--- What `require(name)` gives in a script.
function library.find(name)
  if type(name) ~= "string" then problem.raise(3, "require needs a name") end
  if name == "cjson" then return cjson() end
  local file = files[name]
  if file then return run(file, name) end
  if host.trust_full then return require(name) end
  problem.raise(3, "there is no library '" .. name .. "': " .. host.root .. "/lib/" .. name:gsub("%.", "/") .. ".lua does not exist",
    suggest.hint(name, order) or "libraries are files in lib/, and cjson; what moonpool itself has needs no require")
end

--- Takes in a compiled lib file. `on_error` is the loader's message handler.
function library.add(path, make, on_error)
  local name = path:match("^lib/(.+)%.lua$"):gsub("/init$", ""):gsub("/", ".")
  local file = { path = path, on_error = on_error }
  files[name], order[#order + 1] = file, name
  file.chunk = make(sandbox.new(library.find, path))
end

--- Runs what is not run yet. `failed(path, value)` hears of each error.
function library.run_all(failed)
  for _, name in ipairs(order) do
    local file = files[name]
    if file.chunk then
      local ok, value = pcall(run, file, name)
      if not ok then failed(file.path, value) end
    end
  end
end

return library
