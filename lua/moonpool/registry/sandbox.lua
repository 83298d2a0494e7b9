-- The environment of scripts. Each file has its own, with copies of the libraries, so that no file sees the assignments
-- of another. No name in it opens files, runs programs, loads bytecode, or reaches the tables of the gateway's own
-- modules.

local host = require "moonpool.host"
local client_request = require "moonpool.calls.client_request"
local lazy = require "moonpool.runtime.lazy"
local base64 = require "moonpool.lib.base64"
local content = require "moonpool.things.tool_result"
local copied = require "moonpool.runtime.copied"
local digest = require "moonpool.lib.digest"
local environment = require "moonpool.lib.env"
local exact = require "moonpool.runtime.exact"
local failure = require "moonpool.runtime.outcome"
local hint_names = lazy "moonpool.runtime.hint_names"
local grants = require "moonpool.runtime.grants"
local job = lazy "moonpool.things.job"
local json = require "moonpool.json"
local limit = lazy "moonpool.things.limit"
local members = require "moonpool.runtime.members"
local null = require "moonpool.runtime.null"
local parallel = require "moonpool.lib.parallel"
local policy = require "moonpool.things.policy"
local problem = require "moonpool.runtime.diagnostic"
local prompt = lazy "moonpool.things.prompt"
local raw = require "moonpool.runtime.raw"
local regex = require "moonpool.lib.regex"
local resource = lazy "moonpool.things.resource"
local show = require "moonpool.runtime.show"
local sort = require "moonpool.runtime.stdlib.sort"
local tables = require "moonpool.runtime.stdlib.table"
local subscriptions = require "moonpool.registry.subscriptions"
local suggest = require "moonpool.runtime.suggest"
local switches = require "moonpool.registry.switches"
local time = require "moonpool.lib.time"
local tool = require "moonpool.things.tool"
local trace = require "moonpool.lib.trace"
local types = require "moonpool.things.type_builder"
local uri = require "moonpool.lib.uri"
local outside_hooks = require "moonpool.runtime.outside_hooks"
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
  -- functions of core/vm/coroutine.c: a task can wait inside a script's coroutine, whose processor time counts for the
  -- call
  coroutine = { "close", "create", "isyieldable", "resume", "running", "status", "wrap", "yield" },
}

for name, list in pairs(libraries) do members.of_library(name, list) end

-- All strings share one metatable. Scripts cannot reach it, and string.dump, which strict scripts may not have, is
-- removed from it.
if not host.script.trust_full then
  debug.getmetatable("").__metatable = false
  string.dump = nil
end

-- A stand-in for a metatable that the whole VM shares. Scripts cannot change the shared one through it.
local function sealed(name)
  return setmetatable({}, { __metatable = false, __name = name, __newindex = function() error("cannot change " .. name, 2) end })
end
local array_mt, object_mt = sealed "json.array_mt", sealed "json.object_mt"

-- The name `__mode` as scripts spell it. This string is made after core/lib/trust.c has changed the name that modules
-- have.
local weak_mode

local function refuse_gc(mt)
  if type(mt) == "table" and rawget(mt, "__gc") ~= nil then error("__gc is not available to scripts: use closing(f)", 3) end
end

local function safe_setmetatable(value, mt)
  if mt == array_mt then
    mt = json.array_mt
  elseif mt == object_mt then
    mt = json.object_mt
  elseif type(mt) == "table" then
    weak_mode = weak_mode or "__" .. "mode"
    refuse_gc(mt)
    if rawget(mt, weak_mode) ~= nil then
      error("__mode is not available to scripts, as weak tables hold up all calls while garbage is collected: remove entries yourself", 2)
    end
  end
  return setmetatable(value, mt)
end

-- Functions of rocks: tables with __mode are ordinary tables, as the "__mode" of scripts means nothing to Lua
-- (core/lib/trust.c).
local function rock_setmetatable(value, mt)
  refuse_gc(mt)
  return setmetatable(value, mt)
end

local function safe_getmetatable(value)
  if type(value) ~= "table" then return nil end
  local mt = getmetatable(value)
  if mt == json.array_mt then return array_mt end
  if json.object_mt and mt == json.object_mt then return object_mt end
  return mt
end

local MAX_DATE_FORMAT_BYTES = 1024
local MAX_CHUNK_BYTES = 1024 * 1024
local CHUNK_MS = 50

-- strftime is one call of C, and needs about a microsecond for some conversions.
local function safe_date(format, ...)
  if type(format) == "string" and #format > MAX_DATE_FORMAT_BYTES then
    error("bad argument #1 to 'date' (a format must have at most " .. MAX_DATE_FORMAT_BYTES .. " bytes)", 2)
  end
  local watch = outside_hooks.date
  if watch then return watch(os.date, format, ...) end
  return os.date(format, ...)
end

-- The clocks of the process, as a recorded or replayed call sees them.
local function safe_time(...)
  local watch = outside_hooks.now
  if watch and ... == nil then return watch(os.time) end
  return os.time(...)
end

local function safe_clock()
  local watch = outside_hooks.clock
  if watch then return watch(os.clock) end
  return os.clock()
end

-- A generator of random numbers for one script.
local function drawing()
  local draw = host.random.generator()
  return function(...)
    local watch = outside_hooks.draw
    if watch then return watch(draw, ...) end
    return draw(...)
  end
end

-- The text to compile, from the argument of `load`; or nil and why.
local function chunk_of(chunk)
  if type(chunk) == "function" then
    local pieces, size = {}, 0
    for piece in chunk do
      if piece == "" then break end
      if type(piece) ~= "string" then return nil, "reader function must return a string" end
      pieces[#pieces + 1], size = piece, size + #piece
      if size > MAX_CHUNK_BYTES then break end
    end
    chunk = table.concat(pieces)
  end
  if type(chunk) == "string" and #chunk > MAX_CHUNK_BYTES then return nil, "load takes at most " .. MAX_CHUNK_BYTES .. " bytes" end
  return chunk
end

local function collect(what)
  if what ~= "count" then error("scripts may only ask collectgarbage \"count\"", 2) end
  return collectgarbage "count"
end

-- The fields of a log line: strings, numbers and booleans as they are, other values as JSON.
local function log_fields(fields)
  if fields == nil then return {} end
  if type(fields) ~= "table" then return { value = show(fields) } end
  local flat = {}
  for name, value in pairs(fields) do
    local kind = type(value)
    flat[tostring(name)] = (kind == "number" or kind == "boolean") and value or show(value)
  end
  return flat
end

local function logger(level)
  return function(event, fields)
    if host.log.wants(level) then host.log.write(level, show(event), log_fields(fields), true) end
  end
end
local log = exact.all("log.", { debug = logger "debug", info = logger "info", warn = logger "warn", error = logger "error" })

local function print_to_log(...)
  if not host.log.wants "info" then return end
  local words = table.pack(...)
  for i = 1, words.n do words[i] = show(words[i]) end
  host.log.write("info", table.concat(words, " "), {}, true)
end

local closer = { __metatable = false, __close = function(self) self.run() end }

--- closing(f): a value for `local x <close> =` which calls f when the block ends, also by an error.
local function closing(f)
  if type(f) ~= "function" then error("closing needs a function, got a " .. type(f), 2) end
  return setmetatable({ run = f }, closer)
end

-- A handler that asks its client unwinds with an error value. pcall and xpcall of scripts pass this value on.
local safe_pcall, safe_xpcall = host.script.protections(failure.input)

local names = exact.all("", {
  tool = tool.new, policy = policy.new,
  job = function(spec) return job.new(spec) end, listen = function(spec) return job.listen(spec) end,
  limit = function(spec) return limit.rate(spec) end, quota = function(spec) return limit.quota(spec) end,
  resource = function(spec) return resource.new(spec) end,
  prompt = function(spec) return prompt.new(spec) end,
  user = function(body) return prompt.user(body) end, assistant = function(body) return prompt.assistant(body) end,
  fail = failure.fail, try = failure.try, fail_request = failure.fail_request, closing = closing, sleep = host.time.sleep,
  text = content.text, image = content.image, audio = content.audio, link = content.link, embed = content.embed,
  enable = switches.enable, disable = switches.disable, enabled = switches.enabled, resource_updated = subscriptions.updated,
  parallel = parallel, bytes = content.bytes, seconds = 1, minutes = 60, hours = 3600,
  setmetatable = safe_setmetatable,
}, { sleep = 1 })

local function copy(from, wanted)
  if not wanted then return copied(from) end
  local made = {}
  for _, name in ipairs(wanted) do made[name] = from[name] end
  return made
end

-- The libraries of which each script gets a copy.
local data = { digest = digest, base64 = base64, time = time, uri = uri, regex = regex, trace = trace }
for name, library in pairs(data) do data[name] = exact.all(name .. ".", library) end
local makers = exact.all("ask.", client_request.makers)
local encoding = exact.all("json.", {
  encode = json.encode, decode = function(value, options) return null.decode(value, options) end, array = json.array, object = json.object,
}, { encode = 1, array = 1, object = 1 })

-- Libraries that most scripts do not use: their modules are loaded for the first script that does.
local large = {
  auth = function(granted, path) return require("moonpool.access.auth").library { granted = granted, path = path } end,
  jwt = function(...) return require("moonpool.lib.jwt").library(...) end,
  upstream = function() return require("moonpool.upstream.script_handle").of end,
}
for _, name in ipairs(host.script.libraries) do -- MP_SCRIPT_LIBRARY of core/lib/bindings.h
  large[name] = function(...) return require("moonpool.lib." .. name).library(...) end
end

-- What the large library `name` is for the script at `path`, whose functions refuse further arguments.
local function load_large(name, granted, path)
  local library = large[name](granted, path)
  if type(library) == "table" and not debug.getmetatable(library) then return exact.all(name .. ".", library) end
  return exact.of(name, library)
end

--- A hint about `name`, which is not `among` the names of a script, or of its library `library`. `line` is the text of
--- the line that uses the name, if known.
function sandbox.hint(name, among, library, line)
  local known = problem.closed[library and library .. "." .. name or name]
  if known and known.instead then
    return ("scripts have '%s' instead; 'trust: full' in the config opens the whole standard library"):format(known.instead)
  end
  local foreign
  if library then foreign = hint_names.member(library, name) else foreign = hint_names.hint(name, line) end
  if foreign then return foreign end
  return #name > 1 and suggest.hint(name, among) or library and library .. " has no such name" or "a script's own names begin with 'local'"
end

local function unknown(base, _, name)
  local line, among = problem.calling_line(3), {}
  for known in pairs(base) do among[known] = true end
  for known in pairs(large) do among[known] = true end
  problem.raise(2, "unknown name '" .. tostring(name) .. "'", sandbox.hint(name, among, nil, line))
end

local function loading(env)
  return function(chunk, chunkname, mode, other)
    if mode and mode ~= "t" and mode ~= "bt" then return nil, "only text can be loaded" end
    local text, why = chunk_of(chunk)
    if text == nil and why then return nil, why end
    return host.script.load(text, chunkname or "=(load)", other or env, CHUNK_MS)
  end
end

-- Copies Lua's own library, as far as scripts may use it, into `base`.
local function add_standard(base)
  for _, name in ipairs(plain) do base[name] = _G[name] end
  for library, wanted in pairs(libraries) do base[library] = copy(_G[library], wanted) end
  if host.script.trust_full then
    for name, value in pairs(_G) do base[name] = value end
    base.table = copy(table) -- scripts get replacements for some of these functions
  else
    base.os.date, base.os.time, base.os.clock, base.math.random = safe_date, safe_time, safe_clock, drawing()
    if outside_hooks.confine then outside_hooks.confine(base) end
  end
  base.pcall, base.xpcall, base.rawset, base.collectgarbage, base.print = safe_pcall, safe_xpcall, raw.set, collect, print_to_log
  base.getmetatable, base.table.sort = safe_getmetatable, sort
end

-- Pure-Lua libraries take functions of io into locals when they load, and most never call them.
local function closed_io()
  local made = {}
  for _, name in ipairs { "close", "input", "lines", "open", "output", "popen", "read", "tmpfile", "write" } do
    made[name] = function()
      error(("io.%s is closed to rocks: a script has '%s' instead, and passes on what it gives; 'trust: full' in the config opens the "
        .. "whole standard library"):format(name, problem.closed.io.instead), 2)
    end
  end
  return made
end

local PACKAGE_CONFIG = "/\n;\n?\n!\n-\n"

--- A new environment for the files of one rock: Lua's own library, and nothing of moonpool's, so nothing that a grant
--- could open. An unknown name is nil, because libraries test which names exist.
function sandbox.of_rock()
  local env = {}
  add_standard(env)
  env._G, env.setmetatable, env.load = env, rock_setmetatable, loading(env)
  if not host.script.trust_full then
    env.math.randomseed = function() end
    env.io, env.debug = closed_io(), { traceback = function(message) return message end }
    env.package = { config = PACKAGE_CONFIG, path = "", cpath = "", loaded = {}, preload = {} }
  end
  return env
end

--- A new environment for the file at `path`. `find` is the function behind its `require`. Of the large libraries it
--- gets those that its `text` names at once, and others at their first use; without a text, all at once.
function sandbox.new(find, path, text)
  local base = {}
  add_standard(base)
  for name, value in pairs(names) do base[name] = value end
  for name, f in pairs(tables) do base.table[name] = f end
  base.log = copy(log)
  for name, library in pairs(data) do base[name] = copy(library) end
  base.uuid = uuid.library()
  base.t = types.new()
  base.ask = copy(makers)
  base.json = {
    encode = encoding.encode, decode = encoding.decode, array = encoding.array, object = encoding.object, null = json.null,
    empty_array = type(json.empty_array) == "table" and json.array {} or json.empty_array, array_mt = array_mt, object_mt = object_mt,
  }
  local granted = grants.of(path)
  for name in pairs(large) do
    if not text or text:find(name, 1, true) then base[name] = load_large(name, granted, path) end
  end
  local read_variable, read_secret = environment.library(granted, path)
  base.env, base.secret = exact.of("env", read_variable), exact.of("secret", read_secret)
  local loaded = {}
  base.require = function(name)
    if loaded[name] == nil then loaded[name] = find(name) end
    return loaded[name]
  end

  local env = setmetatable({}, { __index = base, __metatable = false, is_environment = true })
  env._G = env
  base.load = loading(env)
  setmetatable(base, { __index = function(self, name)
    if not large[name] then return unknown(base, self, name) end
    base[name] = load_large(name, granted, path)
    return base[name]
  end, __metatable = false })
  return env, base
end

return sandbox
