-- `exec` of scripts: a granted program with its arguments, no shell in between, while the call waits.

local host = require "moonpool.host"
local grants = require "moonpool.grants"
local paths = require "moonpool.paths"
local problem = require "moonpool.problem"
local sorted = require "moonpool.sorted"
local suggest = require "moonpool.suggest"

local exec = {}

local MOST_TIME = 86400 -- seconds

local known = { stdin = "string", timeout = "number", env = "table", cwd = "string", max = "number" }
local names = { "cwd", "env", "max", "stdin", "timeout" }

-- What every program needs and nobody minds it to know.
local harmless = { "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME" }

-- Variables that make a program load or run something else than itself.
local turning = { BASH_ENV = true, ENV = true, GCONV_PATH = true, GLIBC_TUNABLES = true, PATH = true }

-- { { text, path }, … } of the programs granted; path is nil where there is none. Looked up once, at load.
local function find_programs(texts)
  local list = {}
  for _, text in ipairs(texts) do
    local wanted = text:find("/", 1, true) and paths.absolute(text) or text
    list[#list + 1] = { text = text, wanted = wanted, path = host.program(wanted) }
  end
  return list
end

local function find(programs, name)
  local wanted = name:find("/", 1, true) and paths.absolute(name) or name
  for _, program in ipairs(programs) do
    local base = program.wanted:match "[^/]*$"
    if wanted == program.wanted or wanted == program.path or wanted == base then return program end
  end
end

local function check(argv, options)
  if type(argv) ~= "table" or type(argv[1]) ~= "string" or argv[1] == "" then
    problem.raise(2, "exec needs a list of words, the program first", "as in exec { \"git\", \"log\", \"-1\" }")
  end
  if type(options) ~= "table" then problem.raise(2, "the options of exec are a table, got a " .. type(options)) end
  for name, value in pairs(options) do
    local want = known[name]
    if not want then
      problem.raise(2, "exec has no option '" .. tostring(name) .. "'", suggest.listed(name, names, "options"))
    elseif type(value) ~= want and not (name == "stdin" and host.reveal(value)) then
      problem.raise(2, "'" .. name .. "' must be a " .. want .. ", got a " .. type(value))
    end
  end
  local time, most = options.timeout, options.max
  if time and not (time > 0 and time <= MOST_TIME) then problem.raise(2, "'timeout' must be above 0 and at most a day", "as in timeout = 5 * seconds") end
  if most and not (most >= 1 and most <= host.exec_limits.output) then
    problem.raise(2, "'max' must be 1 to limits.exec.output, which is " .. host.exec_limits.output .. " bytes")
  end
end

local function word(value, where)
  local kind = type(value)
  local text = host.reveal(value) or (kind == "string" or kind == "number") and tostring(value)
  if not text then problem.raise(3, where .. " must be a string or a number, got a " .. kind) end
  if text:find("\0", 1, true) then problem.raise(3, where .. " holds a NUL") end
  return text
end

local function words(argv)
  local list = {}
  for i = 1, #argv do list[i] = word(argv[i], "word " .. i .. " of exec") end
  return list
end

local function environment(more)
  local all, list = {}, {}
  for _, name in ipairs(harmless) do all[name] = host.getenv(name) end
  for name, value in pairs(more or {}) do
    if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then problem.raise(2, "'env' has a name that no variable can have") end
    if turning[name] or name:find "^LD_" then
      problem.raise(2, "'env' may not set " .. name .. ": it would make the program run something else")
    end
    all[name] = word(value, "'env." .. name .. "'")
  end
  for _, name in ipairs(sorted(all)) do list[#list + 1] = name .. "=" .. all[name] end
  return list
end

--- exec(argv, options) of one script file. `granted` is what grants.of(path) gives.
function exec.library(granted, file)
  local programs, readable = find_programs(granted.run), paths.roots(granted.read)

  -- The root and the rest of the folder that it starts in; or nil, why.
  local function start_in(cwd)
    if not cwd then return host.folder, "" end
    local wanted, wrong = paths.absolute(cwd)
    if not wanted then problem.raise(2, "'cwd': " .. wrong) end
    local root, rest = paths.within(readable, wanted)
    if root then return root, rest end
    return nil, grants.refusal("read", paths.shown(wanted), file)
  end

  return function(argv, options)
    options = options or {}
    check(argv, options)
    local list, env = words(argv), environment(options.env)
    local name = argv[1]
    local program = find(programs, name)
    if not program then
      host.log("warn", "exec refused", { file = file, program = name, why = "no grant" })
      return nil, grants.refusal("run", name, file)
    end
    if not program.path then return nil, name .. ": there is no such program" end
    local root, rest = start_in(options.cwd)
    if not root then return nil, rest end
    local seconds, most = options.timeout or host.exec_limits.time, math.floor(options.max or host.exec_limits.output)
    local result, why = host.exec {
      path = program.path, argv = list, env = env, root = root, rest = rest, stdin = host.reveal(options.stdin) or options.stdin or "",
      seconds = seconds, most = most,
    }
    if result then return result end
    if why == "late" then why = ("no end within %g s"):format(seconds) end
    if why == "loud" then why = ("it printed more than %d bytes"):format(most) end
    return nil, name .. ": " .. why
  end
end

return exec
