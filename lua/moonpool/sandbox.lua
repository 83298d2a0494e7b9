-- What a script sees. Each file has an environment of its own, with its own copies of the libraries, so what one file
-- writes no other sees. Nothing here opens files, runs programs, reads bytecode or reaches the library's own tables.

local host = require "moonpool.host"
local auth = require "moonpool.auth"
local base64 = require "moonpool.lib.base64"
local content = require "moonpool.content"
local digest = require "moonpool.lib.digest"
local environment = require "moonpool.environment"
local exec = require "moonpool.exec"
local failure = require "moonpool.failure"
local fs = require "moonpool.fs"
local grants = require "moonpool.grants"
local http = require "moonpool.http"
local job = require "moonpool.lib.job"
local json = require "moonpool.json"
local jwt = require "moonpool.jwt"
local limit = require "moonpool.limit"
local parallel = require "moonpool.lib.parallel"
local policy = require "moonpool.policy"
local problem = require "moonpool.problem"
local prompt = require "moonpool.prompt"
local questions = require "moonpool.questions"
local regex = require "moonpool.lib.regex"
local resource = require "moonpool.resource"
local sort = require "moonpool.sort"
local tables = require "moonpool.tables"
local sqlite = require "moonpool.lib.sqlite"
local store = require "moonpool.lib.store"
local subscriptions = require "moonpool.subscriptions"
local suggest = require "moonpool.suggest"
local switches = require "moonpool.switches"
local time = require "moonpool.lib.time"
local tool = require "moonpool.tool"
local types = require "moonpool.types"
local uri = require "moonpool.lib.uri"
local uuid = require "moonpool.lib.uuid"

local sandbox = { dump = string.dump }

local plain = {
  "assert", "error", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget", "rawlen", "rawset", "select", "tonumber", "tostring",
  "type", "xpcall", "_VERSION",
}

local libraries = {
  string = {
    "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "pack", "packsize", "rep", "reverse", "sub", "unpack", "upper",
  },
  table = { "concat", "insert", "move", "pack", "remove", "sort", "unpack" },
  math = {
    "abs", "acos", "asin", "atan", "ceil", "cos", "deg", "exp", "floor", "fmod", "huge", "log", "max", "maxinteger", "min", "mininteger",
    "modf", "pi", "rad", "random", "sin", "sqrt", "tan", "tointeger", "type", "ult",
  },
  utf8 = { "char", "charpattern", "codepoint", "codes", "len", "offset" },
  os = { "clock", "date", "difftime", "time" },
  -- C's own functions stand here: a task can wait inside a script's coroutine, and its budget counts there too
  coroutine = { "close", "create", "isyieldable", "resume", "running", "status", "wrap", "yield" },
}

-- Strings share one metatable: hide it, and take out of its reach what scripts may not have.
if not host.trust_full then
  debug.getmetatable("").__metatable = false
  string.dump = nil
end

-- Scripts get stand-ins for the metatables that the whole VM shares, and cannot change those.
local function sealed(name)
  return setmetatable({}, { __metatable = false, __name = name, __newindex = function() error("cannot change " .. name, 2) end })
end
local array_mt, object_mt = sealed "json.array_mt", sealed "json.object_mt"

local function safe_setmetatable(value, mt)
  if mt == array_mt then
    mt = json.array_mt
  elseif mt == object_mt then
    mt = json.object_mt
  elseif type(mt) == "table" and rawget(mt, "__gc") ~= nil then
    error("__gc is not available to scripts: use closing(f)", 2)
  end
  return setmetatable(value, mt)
end

local function safe_getmetatable(value)
  if type(value) ~= "table" then return nil end
  local mt = getmetatable(value)
  if mt == json.array_mt then return array_mt end
  if json.object_mt and mt == json.object_mt then return object_mt end
  return mt
end

local function collect(what)
  if what ~= "count" then error("scripts may only ask collectgarbage \"count\"", 2) end
  return collectgarbage "count"
end

-- Fields of a log line are strings, numbers and booleans.
local function log_fields(fields)
  if fields == nil then return {} end
  if type(fields) ~= "table" then return { value = tostring(fields) } end
  local flat = {}
  for name, value in pairs(fields) do
    local kind = type(value)
    flat[tostring(name)] = (kind == "string" or kind == "number" or kind == "boolean") and value or tostring(value)
  end
  return flat
end

local function logger(level)
  return function(event, fields) host.log(level, tostring(event), log_fields(fields)) end
end
local log = { debug = logger "debug", info = logger "info", warn = logger "warn", error = logger "error" }

local function print_to_log(...)
  local words = table.pack(...)
  for i = 1, words.n do words[i] = tostring(words[i]) end
  host.log("info", table.concat(words, " "), {})
end

local closer = { __metatable = false, __close = function(self) self.run() end }

--- closing(f): a value for `local x <close> =` that runs f when its block ends, however it ends.
local function closing(f)
  if type(f) ~= "function" then error("closing needs a function, got a " .. type(f), 2) end
  return setmetatable({ run = f }, closer)
end

-- A handler that asks its client unwinds through the script's own pcalls, which must not take that for a failure.
local function pass(ok, value, ...)
  if not ok and failure.is_input(value) then error(value, 0) end
  return ok, value, ...
end
local function safe_pcall(f, ...) return pass(pcall(f, ...)) end
local function safe_xpcall(f, handler, ...)
  return pass(xpcall(f, function(value)
    if failure.is_input(value) then return value end
    return handler(value)
  end, ...))
end

local names = {
  pcall = safe_pcall, xpcall = safe_xpcall,
  tool = tool.new, job = job.new, policy = policy.new, limit = limit.rate, quota = limit.quota,
  resource = resource.new, prompt = prompt.new, user = prompt.user, assistant = prompt.assistant,
  fail = failure.fail, try = failure.try, fail_request = failure.fail_request, closing = closing, sleep = host.sleep, print = print_to_log,
  text = content.text, image = content.image, audio = content.audio, link = content.link, embed = content.embed,
  enable = switches.enable, disable = switches.disable, enabled = switches.enabled, resource_updated = subscriptions.updated,
  parallel = parallel, bytes = content.bytes, seconds = 1, minutes = 60, hours = 3600,
  setmetatable = safe_setmetatable, getmetatable = safe_getmetatable, collectgarbage = collect,
}

local function copy(from, wanted)
  local made = {}
  if wanted then
    for _, name in ipairs(wanted) do made[name] = from[name] end
  else
    for name, value in pairs(from) do made[name] = value end
  end
  return made
end

-- Each script has copies.
local data = { store = store, digest = digest, base64 = base64, time = time, uri = uri, regex = regex }

--- What to do about `name`, which is not `among` the names of a script or of its library `library`.
function sandbox.hint(name, among, library)
  local known = problem.closed[library and library .. "." .. name or name]
  if known and known.instead then
    return ("scripts have '%s' instead; 'trust: full' in the config opens the whole standard library"):format(known.instead)
  end
  return suggest.hint(name, among) or library and library .. " has no such name" or "a script's own names begin with 'local'"
end

local function unknown(base, _, name)
  problem.raise(2, "unknown name '" .. tostring(name) .. "'", sandbox.hint(name, base))
end

--- A new environment for the file at `path`. `find` is what `require` does in it.
function sandbox.new(find, path)
  local base = {}
  for _, name in ipairs(plain) do base[name] = _G[name] end
  for library, wanted in pairs(libraries) do base[library] = copy(_G[library], wanted) end
  if host.trust_full then
    for name, value in pairs(_G) do base[name] = value end
    base.table = copy(table) -- some of it is replaced below, for scripts alone
  end
  for name, value in pairs(names) do base[name] = value end
  base.table.sort = sort
  for name, f in pairs(tables) do base.table[name] = f end
  base.log = copy(log)
  for name, library in pairs(data) do base[name] = copy(library) end
  base.uuid = uuid.library()
  base.t = types.new()
  base.ask = copy(questions.makers)
  base.json = {
    encode = json.encode, decode = json.decode, array = json.array, object = json.object, null = json.null,
    empty_array = type(json.empty_array) == "table" and json.array {} or json.empty_array, array_mt = array_mt, object_mt = object_mt,
  }
  local granted = grants.of(path)
  base.http = http.library(granted, path)
  base.fs = fs.library(granted, path)
  base.sqlite = sqlite.library(granted, path)
  base.exec = exec.library(granted, path)
  base.jwt = jwt.library(granted, path)
  base.auth = auth.library { granted = granted, path = path }
  base.env, base.secret = environment.library(granted, path)
  local loaded = {}
  base.require = function(name)
    if loaded[name] == nil then loaded[name] = find(name) end
    return loaded[name]
  end

  local env = setmetatable({}, { __index = base, __metatable = false })
  env._G = env
  base.load = function(chunk, chunkname, mode, other)
    if mode and mode ~= "t" and mode ~= "bt" then return nil, "only text can be loaded" end
    if type(chunk) == "function" then
      local pieces = {}
      for piece in chunk do
        if piece == "" then break end
        pieces[#pieces + 1] = piece
      end
      chunk = table.concat(pieces)
    end
    return host.load(chunk, chunkname or "=(load)", other or env)
  end
  setmetatable(base, { __index = function(...) return unknown(base, ...) end, __metatable = false })
  return env, base
end

return sandbox
