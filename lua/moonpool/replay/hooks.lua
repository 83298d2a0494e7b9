-- Replaces the functions of the libraries that reach outside (files, HTTP, SQL, clocks). Each use of one passes through
-- a single function of the caller, which records the results or gives recorded ones instead.

local host = require "moonpool.host"
local json = require "moonpool.json"
local paths = require "moonpool.runtime.paths"
local outside_hooks = require "moonpool.runtime.outside_hooks"

local hooks = {}

-- Variables that each program inherits from the gateway, which differ from machine to machine.
local inherited = { PATH = true, HOME = true, LANG = true, LC_ALL = true, TZ = true, TMPDIR = true, USER = true, LOGNAME = true }

local function own_variables(env)
  local list = json.array {}
  for _, line in ipairs(env or {}) do
    if not inherited[line:match "^[^=]*"] then list[#list + 1] = line end
  end
  return list
end

local function place(root, rest)
  return paths.shown(rest == "" and root or root == "/" and "/" .. rest or root .. "/" .. rest)
end

-- The libraries of scripts by the prefixes of their keys. Entries of the store that the gateway itself keeps, such as
-- the buckets of limits, go another way than those of scripts.
local stores = { ["s:"] = "store ", ["near s:"] = "store.near " }
local locks = { ["lock:"] = "store ", ["near lock:"] = "store.near " }

--- True if the key is that of a lock. What renews a lock and gives it back is not recorded: it goes by the time.
function hooks.is_lock(key) return locks[key:match "^[%l ]+:"] ~= nil end

--- Puts the hooks in place. `through(kind, args, real)` gives the results of real(), or others; `value(kind, real,
--- ...)` one value of a clock or a generator.
--- Returns a function that takes the hooks away.
function hooks.install(through, value)
  local before = {}
  local function swap(group, name, make)
    local real = host[group][name]
    before[#before + 1] = { host[group], name, real }
    host[group][name] = make(real)
  end
  local function watch(name, f)
    before[#before + 1] = { outside_hooks, name, outside_hooks[name] }
    outside_hooks[name] = f
  end

  swap("http", "send", function(real)
    return function(asked)
      return through("http", { method = asked.method, url = asked.url, headers = asked.headers, body = asked.body, stream = asked.stream and true or nil },
        function() return real(asked) end)
    end
  end)
  swap("http", "read", function(real)
    return function(handle, idle) return through("http read", { stream = handle }, function() return real(handle, idle) end) end
  end)
  swap("program", "run", function(real)
    return function(asked)
      return through("exec", { argv = asked.argv, env = own_variables(asked.env), cwd = place(asked.root, asked.rest), stdin = asked.stdin },
        function() return real(asked) end)
    end
  end)
  swap("fs", "run", function(real)
    return function(what, root, rest, text)
      return through("fs " .. what, { path = place(root, rest), text = text }, function() return real(what, root, rest, text) end)
    end
  end)
  for _, name in ipairs { "get", "set", "add", "cas", "lock", "set_locked", "incr", "delete", "keys" } do
    swap("store", name, function(real)
      return function(key, ...)
        local prefix = type(key) == "string" and key:match "^[%l ]+:"
        local library = (name == "lock" and locks or stores)[prefix]
        if not library then return real(key, ...) end
        local more = { ... }
        local args = { key = key:sub(#prefix + 1), values = #more > 0 and json.array(more) or nil }
        return through(library .. name, args, function() return real(key, table.unpack(more)) end)
      end
    end)
  end
  swap("call", "ask", function(real)
    return function(call, method, params) return through("question", { method = method, params = params }, function() return real(call, method, params) end) end
  end)
  watch("sqlite", function(shown, kind, sql, params, real) return through("sqlite " .. kind, { database = shown, sql = sql, params = params }, real) end)
  watch("redis", function(server, commands, real) return through("redis", { server = server, commands = commands }, real) end)
  watch("postgres", function(database, statements, real) return through("postgres", { database = database, statements = statements }, real) end)
  watch("upstream", function(name, what, called, args, real)
    return through("upstream " .. what, { upstream = name, name = called, arguments = args }, real)
  end)

  swap("time", "clock", function(real) return function() return value("clock", real) end end)
  swap("time", "now", function(real) return function() return value("monotonic", real) end end)
  swap("random", "bytes", function(real) return function(n) return value("bytes", real, n) end end)
  local function now(real) return value("time", real) end
  watch("now", now)
  watch("date", function(real, format, when) return real(format, when or now(os.time)) end)
  watch("clock", function(real) return value("cpu", real) end)
  watch("draw", function(real, ...) return value("draw", real, ...) end)
  return function()
    for i = #before, 1, -1 do before[i][1][before[i][2]] = before[i][3] end
  end
end

--- True if a use of this kind changes nothing outside, nor reads from it.
function hooks.is_silent(kind) return kind == "http read" end

return hooks
