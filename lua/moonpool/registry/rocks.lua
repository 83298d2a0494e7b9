-- require of rocks: pure-Lua modules below scripts.rocks, loaded when they are first required. The files of one rock,
-- x.lua and all in x/, share an environment of their own (sandbox.of_rock). They have no grants, and see neither
-- scripts/lib nor moonpool's libraries, so a rock has effects only through functions and values that a script passes to
-- it.

local host = require "moonpool.host"
local sandbox = require "moonpool.registry.sandbox"

local rocks = {}

local DEEPEST = 100         -- limit of the modules that load inside one another
local COMPILE_MS = 500      -- milliseconds of processor time for one file

local environments = {}     -- first part of the module's name -> the environment
local loaded = {}           -- name -> value
local opened = {}           -- the paths of files that were loaded, or tried, relative to host.rock.folder

local standard = { string = true, table = true, math = true, utf8 = true, os = true, coroutine = true, io = true, debug = true, _G = true }

if host.script.trust_full and host.rock.folder then
  package.path = host.rock.folder .. "/?.lua;" .. host.rock.folder .. "/?/init.lua;" .. package.path
  package.cpath = host.rock.c_folder .. "/?.so;" .. package.cpath
end

-- The path of a module below host.rock.folder, and its text; nil if there is no such file.
local function find(name)
  if not host.rock.folder or not name:find "^[%w_-][%w_.-]*$" then return nil end
  local path = name:gsub("%.", "/")
  for _, candidate in ipairs { path .. ".lua", path .. "/init.lua" } do
    local text = host.rock.read(candidate)
    if text then return candidate, text end
  end
end

--- The paths that were searched for a module and the files that were found, for an error message; nil without
--- scripts.rocks.
function rocks.absence(name)
  if not host.rock.folder or not name:find "^[%w_-][%w_.-]*$" then return nil end
  local path = name:gsub("%.", "/")
  local c_module = host.rock.c_module(path)
  if c_module and host.script.is_confined then return c_module .. " is a C module, and a replay loads none: set scripts.gate to off, or do without it", true end
  if c_module then return c_module .. " is a C module: only trust: full could load it", true end
  return host.rock.folder .. "/" .. path .. ".lua does not exist"
end

--- The path and the text of a rock's file that an error message names; nil for another file. Lua cuts long names to
--- "...tail".
function rocks.source(shown)
  local tail = shown:match "^%.%.%.(.+)$"
  for path in pairs(opened) do
    local whole = host.rock.folder .. "/" .. path
    if whole == shown or tail and whole:sub(-#tail) == tail then return whole, host.rock.read(path) end
  end
end

-- `require` of a file of a rock. `shared` is the rock's environment, `above` the load that it is part of, or nil.
local function requiring(shared, above)
  return function(name)
    if type(name) ~= "string" then error("bad argument #1 to 'require' (string expected, got " .. type(name) .. ")", 2) end
    local packages = not host.script.trust_full and rawget(shared, "package")
    local known = type(packages) == "table" and type(packages.loaded) == "table" and packages.loaded[name]
    if known then return known end
    if standard[name] then return shared[name] end
    if name == "cjson" or name == "cjson.safe" then
      local module, why = host.cjson.new(name == "cjson.safe")
      if not module then error("module '" .. name .. "' not found: " .. tostring(why), 2) end
      return module
    end
    local value = rocks.get(name, above)
    if value ~= nil then return value end
    if host.script.trust_full then return require(name) end
    error("module '" .. name .. "' not found: " .. (rocks.absence(name) or "not a module name"), 2)
  end
end

local function environment_of(name)
  local top = name:match "^[^.]+"
  if not environments[top] then
    local env = sandbox.of_rock()
    env.require = requiring(env)
    environments[top] = env
  end
  return environments[top]
end

-- `above` is the load that requires this one, { name, above, depth, is_over }, or nil.
local function load(name, path, text, above)
  local depth = above and above.depth + 1 or 1
  if depth > DEEPEST then error("more than " .. DEEPEST .. " rocks require each other: " .. name, 0) end
  local this <close> = setmetatable({ name = name, above = above, depth = depth }, { __close = function(self) self.is_over = true end })
  local shared = environment_of(name)
  -- `require` of this file knows the modules that are being loaded around it; everything else is shared by the rock
  local env = setmetatable({ require = requiring(shared, this) }, { __index = shared, __newindex = shared })
  opened[path] = true
  local chunk, why, hint = host.script.load(text, "@" .. host.rock.folder .. "/" .. path, env, COMPILE_MS)
  if not chunk then error(hint and why .. " (" .. hint .. ")" or why, 0) end
  local value = chunk(name, host.rock.folder .. "/" .. path)
  if loaded[name] ~= nil then return loaded[name] end -- another call has loaded the module meanwhile
  local packages = not host.script.trust_full and rawget(shared, "package")
  local known = type(packages) == "table" and packages.loaded
  if value == nil and type(known) == "table" then value = known[name] end
  if value == nil then value = true end
  if type(known) == "table" then known[name] = value end
  loaded[name] = value
  return value
end

--- The value of a rock's module; nil if there is no such module.
function rocks.get(name, above)
  if loaded[name] ~= nil then return loaded[name] end
  local path, text = find(name)
  if not path then return nil end
  local circle, at = name, above
  while at and not at.is_over do
    circle = at.name .. " -> " .. circle
    if at.name == name then error("rocks require each other: " .. circle, 0) end
    at = at.above
  end
  return load(name, path, text, above)
end

return rocks
