-- The function `exec` of scripts: runs a granted program with arguments, without a shell, while the call waits.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local grants = require "moonpool.runtime.grants"
local paths = require "moonpool.runtime.paths"
local problem = require "moonpool.runtime.diagnostic"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"
local timed = require "moonpool.runtime.timed"

---@alias moonpool.host.Command { path: string, argv: string[], env: string[], root?: string, rest?: string, stdin?: string, seconds: number, most: integer }
---@alias moonpool.host.Ran { status?: integer, signal?: integer, stdout: string, stderr: string }
---@class moonpool.host
---@field program moonpool.host.program
---@class moonpool.host.program
---@field run fun(request: moonpool.host.Command): moonpool.host.Ran?, string?   The result; or nil, and "late", "loud" or the system's error
---@field find fun(name: string): string?   The path of a program in PATH. It blocks: for scripts that load

-- The library `exec` of scripts. exec.stand_in(argv, options) replaces the programs while a spec fakes them; else nil.
local exec = {}

local MAX_TIME_S = 86400 -- seconds that a program may run
local known_ends = { late = "timeout", loud = "output" }

local known = { stdin = "string", timeout = "number", env = "table", cwd = "string", max = "number" }
local names = { "cwd", "env", "max", "stdin", "timeout" }

-- Limits in bytes of one argument or variable, and of all together; Linux accepts at least these sizes. The copies are
-- outside of the memory that counts for the call's limit.
local MAX_WORD_BYTES, MAX_WORDS_BYTES = 131071, 1 << 20
local MAX_WORDS = 4096

-- Variables of the gateway's environment that every program inherits.
local common = { "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME" }

-- Variables that `env` may set without a grant: they change language and time zone, and no code that a program loads or
-- runs.
local harmless = { LANG = true, LANGUAGE = true, TZ = true, LC_ALL = true, LC_COLLATE = true, LC_CTYPE = true, LC_MESSAGES = true, LC_MONETARY = true,
  LC_NUMERIC = true, LC_TIME = true, NO_COLOR = true, TERM = true, COLUMNS = true, LINES = true }

-- Variables by which the dynamic linker and the C library load code: no grant allows them.
local refused = { GCONV_PATH = true, GLIBC_TUNABLES = true, LOCPATH = true, NLSPATH = true }

-- { { text, path }, … } of the granted programs; path is nil if a program does not exist. Programs are looked up once,
-- while scripts load.
local function find_programs(texts)
  local list = {}
  for _, text in ipairs(texts) do
    local wanted = text:find("/", 1, true) and paths.absolute(text) or text
    list[#list + 1] = { text = text, wanted = wanted, path = host.program.find(wanted) }
  end
  return list
end

--- The programs in `texts` that do not exist, as the operator wrote them.
function exec.missing(texts)
  local list = {}
  for _, program in ipairs(find_programs(texts)) do
    if not program.path then list[#list + 1] = program.text end
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

-- Copies argv and options without metamethods, so that the values that are checked are the values that are used.
local function check(argv, options)
  argv, options = copied(argv), copied(options)
  if type(argv) ~= "table" or type(argv[1]) ~= "string" or argv[1] == "" then
    problem.raise(2, "exec needs a list of words: the program, then its arguments", "as in exec { \"git\", \"log\", \"-1\" }")
  end
  if #argv > MAX_WORDS then problem.raise(2, "exec takes at most " .. MAX_WORDS .. " words, got " .. #argv) end
  if type(options) ~= "table" then problem.raise(2, "the options of exec must be a table, got a " .. type(options)) end
  for name, value in next, options do
    local want = known[name]
    if not want then
      problem.raise(2, "exec has no option '" .. tostring(name) .. "'", suggest.listed(name, names, "options"))
    elseif type(value) ~= want and not (name == "stdin" and host.secret.reveal(value)) then
      problem.raise(2, "'" .. name .. "' must be a " .. want .. ", got a " .. type(value))
    end
  end
  options.env = copied(options.env)
  local time, most = options.timeout, options.max
  if time and not (time > 0 and time <= MAX_TIME_S) then problem.raise(2, "'timeout' must be above 0 and at most a day", "as in timeout = 5 * seconds") end
  if most and not (most >= 1 and most <= host.limits.exec.output) then
    problem.raise(2, "'max' must be 1 to " .. host.limits.exec.output .. " bytes")
  end
  return argv, options
end

local function word(value, where)
  local kind = type(value)
  local text = host.secret.reveal(value) or (kind == "string" or kind == "number") and tostring(value)
  if not text then problem.raise(3, where .. " must be a string or a number, got a " .. kind) end
  if text:find("\0", 1, true) then problem.raise(3, where .. " contains a NUL byte") end
  return text
end

-- Returns the list of arguments; or nil, why if it is larger than a program can take.
local function words(argv)
  local list, size = {}, 0
  for i = 1, #argv do
    list[i] = word(argv[i], "argument " .. i .. " of exec")
    size = size + #list[i] + 1
    if #list[i] > MAX_WORD_BYTES then
      return nil, ("argument %d has %d bytes, and a program takes at most %d: pass it by 'stdin'"):format(i, #list[i], MAX_WORD_BYTES)
    end
    if size > MAX_WORDS_BYTES then return nil, ("the arguments have more than %d bytes together: pass them by 'stdin'"):format(MAX_WORDS_BYTES) end
  end
  return list
end

-- True if `env` may set the variable; or false, why.
local function may_set(name, granted, file)
  if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then problem.raise(3, "'env' has an invalid name of a variable") end
  if refused[name] or name:find "^LD_" then
    problem.raise(3, "'env' may not set " .. name .. ": it would make the program load other code")
  end
  if harmless[name] or grants.matches(granted.env, name) then return true end
  host.log.write("warn", "exec refused", { file = file, variable = name, why = "no grant", grant = grants.yaml("env", name, file) })
  return false, grants.refusal("env", name, file)
end

-- Makes the environment of the program, { "NAME=value", … }; or nil, why.
local function environment(more, granted, file)
  local all, list, size = {}, {}, 0
  for _, name in ipairs(common) do all[name] = host.env.get(name) end
  for name, value in next, more or {} do
    local may, why = may_set(name, granted, file)
    if not may then return nil, why end
    all[name] = word(value, "'env." .. name .. "'")
  end
  for _, name in ipairs(sorted(all)) do
    local line = name .. "=" .. all[name]
    size = size + #line + 1
    if #line > MAX_WORD_BYTES or size > MAX_WORDS_BYTES then
      return nil, "the environment is larger than a program takes: the limit is reached at '" .. name .. "'"
    end
    list[#list + 1] = line
  end
  return list
end

--- exec(argv, options) of one script file. `granted` is what grants.of(path) gives.
function exec.library(granted, file)
  local programs, readable = find_programs(granted.run), paths.roots(granted.read)

  -- The working folder of the program, as a granted root and the path below it; or nil, why.
  local function start_in(cwd)
    if not cwd then return host.config.folder, "" end
    local wanted, wrong = paths.absolute(cwd)
    if not wanted then problem.raise(2, "'cwd': " .. wrong) end
    local root, rest = paths.within(readable, wanted)
    if root then return root, rest end
    return nil, grants.refusal("read", paths.shown(wanted), file)
  end

  return function(argv, options)
    argv, options = check(argv, options or {})
    local name = argv[1]
    local list, wrong = words(argv)
    if not list then return nil, name .. ": " .. wrong end
    local program = find(programs, name)
    if not program then
      host.log.write("warn", "exec refused", { file = file, program = name, why = "no grant", grant = grants.yaml("run", name, file) })
      return nil, grants.refusal("run", name, file)
    end
    local env
    env, wrong = environment(options.env, granted, file)
    if not env then return nil, wrong end
    if exec.stand_in then return exec.stand_in(list, options) end
    if not program.path then return nil, name .. ": there is no such program" end
    local root, rest = start_in(options.cwd)
    if not root then return nil, rest end
    local seconds, most = options.timeout or host.limits.exec.time, math.floor(options.max or host.limits.exec.output)
    local measured <close> = timed.start(program, "exec", program.text)
    local result, why = host.program.run {
      path = program.path, argv = list, env = env, root = root, rest = rest, stdin = host.secret.reveal(options.stdin) or options.stdin or "",
      seconds = seconds, most = most, script = file,
    }
    measured.outcome = result and (result.status == 0 and "0" or result.status and "failed" or "signal") or known_ends[why] or "error"
    if result then return result end
    if why == "late" then why = ("the program did not end within %g s"):format(seconds) end
    if why == "loud" then why = ("the program printed more than %d bytes"):format(most) end
    return nil, name .. ": " .. why
  end
end

return exec
