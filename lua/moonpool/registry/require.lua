-- `require` in scripts: scripts/lib/x.lua, run once per VM, "cjson", and modules of rocks. All files of lib/ run at
-- load, so that a call only looks them up.

local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"
local rocks = require "moonpool.registry.rocks"
local sandbox = require "moonpool.registry.sandbox"
local suggest = require "moonpool.runtime.suggest"

local library = {}

local files, order = {}, {}       -- name -> { path, chunk, state, value }
local running = {}                -- names that are being run now, outermost first

-- `find` is called by a script's `require`, and calls this function last: so the script is 3 levels up.
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
  local ok, value = host.script.guarded(file.chunk, file.on_error)
  running[#running] = nil
  if not ok then
    file.state = nil
    file.chunk = nil
    error(value, 0)
  end
  if value == nil then
    file.state, file.chunk = nil, nil
    error(problem.of_file(file.path, "the file returns nothing", "end it with 'return { … }'"), 0)
  end
  file.state, file.value = "done", value
  return value
end

-- Each script has its own settings of cjson. core/lib/cjson.c adds bounds to lua-cjson's functions.
local function cjson(is_safe)
  local module, why = host.cjson.new(is_safe)
  if not module then problem.raise(3, "cjson is not available: " .. tostring(why), "json is always there") end
  return module
end

-- Libraries of Lua and of other languages whose work a library of moonpool does.
local instead = {
  sqlite = { "lsqlite3", "lsqlite3complete", "luasql", "ljsqlite3", "sqlite3" }, http = { "socket", "ssl", "http", "requests", "axios", "node-fetch", "resty" },
  json = { "json", "dkjson", "rapidjson", "lunajson" }, fs = { "lfs", "fs", "io", "path" }, digest = { "crypto", "openssl", "md5", "sha1", "sha2" },
  exec = { "child_process", "subprocess", "posix" }, store = { "redis" }, regex = { "rex_pcre2", "rex_pcre", "re", "lpeg" }, time = { "date", "luatz" },
  uuid = { "uuid" }, base64 = { "base64", "mime" }, jwt = { "jwt", "luajwt" }, log = { "logging" },
}

local function replacement(name)
  local root = name:match "^[^.]*"
  for own, others in pairs(instead) do
    for _, other in ipairs(others) do
      if other == root then return ("'%s' does that here, and needs no require"):format(own) end
    end
  end
end

--- The value of `require(name)` in a script.
function library.find(name)
  if type(name) ~= "string" then problem.raise(3, "require needs a name") end
  if name == "cjson" or name == "cjson.safe" then return cjson(name == "cjson.safe") end
  local file = files[name]
  if file then return run(file, name) end
  local value = rocks.get(name)
  if value ~= nil then return value end
  if host.script.trust_full then return require(name) end
  local absence, is_c = rocks.absence(name)
  if is_c then problem.raise(3, "there is no library '" .. name .. "': " .. absence, "use a rock in pure Lua, or a library of moonpool") end
  problem.raise(3, "there is no library '" .. name .. "': " .. host.script.root .. "/lib/" .. name:gsub("%.", "/") .. ".lua does not exist"
    .. (absence and ", and " .. absence or ""),
    suggest.hint(name, order) or replacement(name) or "libraries are files in lib/, and cjson; moonpool's own libraries need no require")
end

--- Adds a file of lib/ with this text, which `make` compiles. `on_error` is the loader's message handler.
function library.add(path, text, make, on_error)
  local name = path:match("^lib/(.+)%.lua$"):gsub("/init$", ""):gsub("/", ".")
  local file = { path = path, on_error = on_error }
  files[name], order[#order + 1] = file, name
  file.chunk = make(sandbox.new(library.find, path, text))
end

--- Runs the files that have not run yet. Calls failed(path, value) for each error.
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
