-- Starts the real binary for a spec: in a folder of its own, on port 0, waiting for the ready line; its stop fails the
-- spec on a bad exit.
--   local g <close> = gateway.start { scripts = { ["tools/add.lua"] = "…" } }
local uv = require "luv"
local cjson = require "cjson.safe"
local children = require "spec.helpers.children"
local wait = require "spec.helpers.wait"
local client = require "spec.helpers.client"

local gateway = {
  binary = os.getenv "MOONPOOL" or "build/debug/moonpool",
  cpu = os.getenv "TSAN_OPTIONS" and "8s" or nil, -- limits.call.cpu: ThreadSanitizer's build computes four times as long
}

local PATIENCE = 20 -- seconds for a start or a stop

-- -- files ------------------------------------------------------------------------------------------------------------

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function write(path, text)
  local folder = ""
  for part in path:gmatch "([^/]*)/" do
    folder = folder .. part .. "/"
    uv.fs_mkdir(folder, 493) -- 0755
  end
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function remove(path)
  local entries = uv.fs_scandir(path)
  while entries do
    local name, kind = uv.fs_scandir_next(entries)
    if not name then
      break
    elseif kind == "directory" then
      remove(path .. "/" .. name)
    else
      uv.fs_unlink(path .. "/" .. name)
    end
  end
  uv.fs_rmdir(path)
end

-- -- descriptors -----------------------------------------------------------------------------------------------------

local function descriptors(pid)
  local list, entries = {}, assert(uv.fs_scandir("/proc/" .. pid .. "/fd"))
  while true do
    local name = uv.fs_scandir_next(entries)
    if not name then
      return list
    end
    list[#list + 1] = uv.fs_readlink("/proc/" .. pid .. "/fd/" .. name) or "gone"
  end
end

-- The inodes of the sockets that the process has, and that it did not have at its start, as the keys of a set; and how
-- many these are.
local function new_sockets(self)
  local set, count = {}, 0
  for _, target in ipairs(descriptors(self.pid)) do
    local inode = target:match "^socket:%[(%d+)%]$"
    if inode and not self.first_sockets[inode] then
      set[inode], count = true, count + 1
    end
  end
  return set, count
end

-- -- processes --------------------------------------------------------------------------------------------------------

local passed_on = { "PATH", "HOME", "XDG_STATE_HOME", "LANG", "TMPDIR", "MOONPOOL_PLANS", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS" }

local function environment(more)
  local list = {}
  for _, name in ipairs(passed_on) do
    local value = os.getenv(name)
    if value and not (more or {})[name] then
      list[#list + 1] = name .. "=" .. value
    end
  end
  for name, value in pairs(more or {}) do
    list[#list + 1] = name .. "=" .. value
  end
  return list
end

-- Starts a program with stdout and stderr in files of `dir`; `ready` is a pipe for its descriptor 3. `options`: env,
-- cwd, stdin and stdout (descriptors or pipes).
local function spawn(path, args, dir, options, ready)
  local out = assert(uv.fs_open(dir .. "/stdout", "w", 420)) -- 0644
  local err = assert(uv.fs_open(dir .. "/stderr", "w", 420))
  local process = { dir = dir }
  local handle, pid = uv.spawn(path, {
    args = args, stdio = { options.stdin, options.stdout or out, err, ready }, env = environment(options.env), cwd = options.cwd,
  }, function(code, signal)
    process.code, process.signal = code, signal
    children.alive[process.pid] = nil
    process.handle:close()
  end)
  uv.fs_close(out)
  uv.fs_close(err)
  assert(handle, ("cannot start %s: %s"):format(path, pid))
  process.handle, process.pid = handle, pid
  children.alive[pid] = true
  return process
end

local function wait_exit(process, seconds)
  wait.for_fact("process " .. process.pid .. " to end", seconds or PATIENCE, function()
    return process.code
  end)
  return process.code, process.signal
end

local function temporary()
  return assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/moonpool-XXXXXX"))
end

gateway.new_folder = temporary

-- Runs any program to its end: exit code, stdout, stderr. `options`: env, cwd, seconds.
function gateway.run_program(path, args, options)
  options = options or {}
  local process = spawn(path, args, temporary(), options)
  local ok, why = pcall(wait_exit, process, options.seconds)
  if not ok then
    uv.kill(process.pid, "sigkill")
    wait_exit(process)
  end
  local out, err = read(process.dir .. "/stdout"), read(process.dir .. "/stderr")
  remove(process.dir)
  if not ok then
    error(("%s\nstdout: %s\nstderr: %s"):format(why, out, err), 2)
  end
  return process.signal == 0 and process.code or -process.signal, out, err
end

-- Runs the binary to its end with these arguments: `gateway.exec({ "check", "moonpool.yaml" })`.
function gateway.exec(args, options)
  return gateway.run_program(uv.fs_realpath(gateway.binary), args, options)
end

-- Calls `f` while `path` is the binary that specs run, and returns what it returns.
function gateway.with_binary(path, f, ...)
  local usual = gateway.binary
  gateway.binary = path
  local results = table.pack(pcall(f, ...))
  gateway.binary = usual
  if not results[1] then error(results[2], 0) end
  return table.unpack(results, 2, results.n)
end

-- -- a running gateway ------------------------------------------------------------------------------------------------

local running = {}
running.__index = running

-- For helpers that start the binary in another way.
gateway.spawn, gateway.running = spawn, running

local function merge(into, from)
  for key, value in pairs(from or {}) do
    if type(value) == "table" and type(into[key]) == "table" and #value == 0 then
      merge(into[key], value)
    else
      into[key] = value
    end
  end
  return into
end

-- JSON is valid YAML, so a config given as a table is written as JSON.
local function config_text(options)
  if type(options.config) == "string" then
    return options.config
  end
  return cjson.encode(merge({
    listen = "127.0.0.1:0",
    admin = { listen = "127.0.0.1:0" },
    workers = options.workers or 2,
    overload = { wait = "off" }, -- off, since on a busy machine requests would wait, and be refused, in any spec
    scripts = { path = options.scripts_path or "scripts" },
    limits = gateway.cpu and { call = { cpu = gateway.cpu } } or nil,
  }, options.config))
end

-- Writes the folder that a gateway is started in; for specs that start the gateway themselves.
function gateway.prepare(options)
  local dir = temporary()
  uv.fs_mkdir(dir .. "/scripts", 493)
  write(dir .. "/moonpool.yaml", config_text(options))
  for path, text in pairs(options.scripts or {}) do
    write(dir .. "/scripts/" .. path, text)
  end
  for path, text in pairs(options.files or {}) do
    write(dir .. "/" .. path, text)
    if text:find("PRIVATE KEY", 1, true) then uv.fs_chmod(dir .. "/" .. path, 384) end -- 0600
  end
  if options.before then options.before(dir) end
  return dir
end

local function read_ready(process, pipe, seconds)
  local line, over = "", false
  pipe:read_start(function(_, bytes)
    if bytes then
      line = line .. bytes
    else
      over = true
    end
  end)
  wait.for_fact("the gateway to be ready", seconds, function()
    return over and (line:find "\n" or process.code) -- the program ends when this descriptor is closed
  end)
  pipe:close()
  return line:match "^ready (.*)\n" or error("the gateway ended with code " .. tostring(process.code), 0)
end

-- Changes a configuration so that the gateway listens with a certificate made for it.
function gateway.use_tls(options)
  local here = require "spec.helpers.certificates".here()
  options.config = merge({ listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem" } } } }, options.config)
  options.files = merge({ ["cert.pem"] = here.certificate, ["key.pem"] = here.key }, options.files)
end

--- The variables of a gateway with these options: `constants` are values of limits that are no keys. Spans are sent at
--- once, unless the constants say otherwise.
function gateway.variables(options)
  local env = merge({ SPEC_LIMIT_trace_interval_ms = "20" }, options.env)
  for name, value in pairs(options.constants or {}) do env["SPEC_LIMIT_" .. name] = tostring(value) end
  return env
end

-- `options`: config (a table, merged over port 0 and two workers; or the YAML's text), scripts and files (text by
-- path), scripts_path (a folder that exists), workers, env, args; constants (values of limits that are no keys: {
-- admin_runs = 1 }, see core/base/limit.h); tls (true: listens with TLS, which clients of specs then use); dir (a
-- folder that already has its moonpool.yaml, and is removed at the end); patience (seconds until it is ready); binary
-- (a program that is started instead of the binary).
function gateway.start(options)
  options = options or {}
  if options.tls then
    gateway.use_tls(options)
  end
  if options.scripts_path then
    options.scripts_path = assert(uv.fs_realpath(options.scripts_path))
  end
  local dir = options.dir or gateway.prepare(options)
  local ready = uv.new_pipe(false)
  local args = { "run", "moonpool.yaml", "--ready-fd", "3" }
  table.move(options.args or {}, 1, #(options.args or {}), #args + 1, args)
  local process = spawn(options.binary or uv.fs_realpath(gateway.binary), args, dir, { env = gateway.variables(options), cwd = dir }, ready)
  local self = setmetatable({ dir = dir, pid = process.pid, process = process }, running)
  self.tls = options.tls and { name = "localhost", ca = dir .. "/cert.pem" }
  local ok, line = pcall(read_ready, process, ready, options.patience or PATIENCE)
  if not ok then
    self:kill()
    error(("%s; its log:\n%s"):format(line, self:log()), 2)
  end
  self.ready = line
  self.url = line:match "mcp=(%S+)"
  self.sse_url = line:match "sse=(%S+)"
  self.port = tonumber((self.url or self.sse_url):match ":(%d+)/") -- nil: the first address is a Unix socket
  self.admin_port = tonumber(line:match "admin=https?://[^:%s]*:(%d+)")
  self.baseline_fds, self.first_sockets = self:fds(), {}
  self.first_sockets = new_sockets(self)
  return self
end

-- Sends GET to the admin listener.
function running:admin(path, method)
  return client.request(self, { method = method, path = path }, { admin = true })
end

-- { pid =, gauges = { sessions = { sse =, http = }, connections =, … }, counters = { … } }
function running:status()
  local response = self:admin "/status"
  return assert(response:json(), "status is no JSON: " .. response.body)
end

-- Waits until `fact(status)` is true; returns that status.
function running:wait_status(fact, seconds)
  local last
  local function named()
    return "a fact about the status, which is now " .. cjson.encode(last)
  end
  return wait.for_fact(named, seconds or PATIENCE, function()
    last = self:status()
    return fact(last) and last
  end)
end

function running:client(revision, options)
  return require "spec.helpers.eras".client(self, revision, options)
end

function running:connect(options)
  return client.connect(self, options)
end

-- Waits until the threads that write the log and other files sleep, so that lines are in them that were logged before
-- an answer was sent. At most a second: a thread may wait for a disk, and the process may stand still.
local function is_writing(pid)
  local tasks = uv.fs_scandir("/proc/" .. pid .. "/task")
  local task = tasks and uv.fs_scandir_next(tasks)
  while task do
    local is_there, stat = pcall(read, ("/proc/%d/task/%s/stat"):format(pid, task))
    if is_there and stat and stat:find "%(writer%) [RD]" then return true end
    task = uv.fs_scandir_next(tasks)
  end
  return false
end

local function let_write(pid)
  for _ = 1, 1000 do
    if not is_writing(pid) then return end
    uv.sleep(1)
  end
end

-- Returns everything that the gateway wrote to stderr: the log, and reports of a sanitizer.
function running:log()
  let_write(self.pid)
  return read(self.dir .. "/stderr")
end

-- Returns what a file in the gateway's folder has, such as the audit; an empty text if there is none.
function running:file(name)
  let_write(self.pid)
  local ok, text = pcall(read, self.dir .. "/" .. name)
  return ok and text or ""
end

local escaped = { n = "\n", t = "\t", r = "\r" }

-- Parses "key=value" or key="a \"quoted\" value" at `from`: returns key, value, and the position after it.
local function parse_field(rest, from)
  local key, start = rest:match("^([%w_.]+)=()", from)
  if not key then
    return nil
  elseif rest:sub(start, start) ~= '"' then
    return key, rest:match("^([^ ]*)()", start)
  end
  local value, at = {}, start + 1
  while at <= #rest and rest:sub(at, at) ~= '"' do
    local slash, char = rest:match("^(\\?)(.)", at)
    value[#value + 1] = slash ~= "" and escaped[char] or char
    at = at + #slash + 1
  end
  return key, table.concat(value), at + 1
end

-- Parses a line such as "2026-11-21T10:15:03.412Z info call done tool=titles ms=412".
local function parse_line(line)
  local at, level, rest = line:match "^(%d%d%d%d%-%S+) (%a+) +(.*)$"
  if not at then
    return nil
  end
  local event, from = rest:match "^(.-) +()[%w_.]+="
  local fields = {}
  while from do
    local key, value, stop = parse_field(rest, from)
    if not key then
      break
    end
    fields[key], from = value, rest:match("^ *()", stop)
  end
  return { at = at, level = level, event = event or rest:match "^(.-) *$", fields = fields, text = line }
end

-- The log as a list of { level, event, fields, text }.
function running:log_lines()
  local lines = {}
  for line in self:log():gmatch "[^\n]+" do
    lines[#lines + 1] = parse_line(line)
  end
  return lines
end

local function find_line(lines, event, fields)
  for _, line in ipairs(lines) do
    local same = line.event == event
    for key, value in pairs(same and fields or {}) do
      same = same and line.fields[key] == tostring(value)
    end
    if same then
      return line
    end
  end
end

-- Waits for the first log line of this event that has these fields.
function running:wait_log(event, fields, seconds)
  local function named()
    return ("the log line '%s' %s; the log is\n%s"):format(event, fields and cjson.encode(fields) or "", self:log())
  end
  return wait.for_fact(named, seconds or PATIENCE, function()
    return find_line(self:log_lines(), event, fields)
  end)
end

-- -- /proc of the gateway --------------------------------------------------------------------------------------

-- The number of descriptors that the process has open.
function running:fds()
  return #descriptors(self.pid)
end

-- Seconds of the processor that the process has used, in steps of 10 ms.
function running:cpu()
  local user, system = read("/proc/" .. self.pid .. "/stat"):match "%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+) (%d+)"
  return (user + system) / 100
end

-- Resident memory of the process, in bytes; or a part of it: "RssAnon", "RssFile"; or the most that it has been:
-- "VmHWM". Always 1 with ThreadSanitizer, whose own memory is several times the gateway's.
function running:rss(part)
  if os.getenv "TSAN_OPTIONS" then return 1 end
  return tonumber(read("/proc/" .. self.pid .. "/status"):match((part or "VmRSS") .. ":%s+(%d+) kB")) * 1024
end

-- The number of its sockets in CLOSE-WAIT: the peer has closed the connection and the gateway has not. `open`: how many
-- connections the caller has open itself. The kernel's table is read only if there are more: specs that leave ten
-- thousands of connections in TIME-WAIT make that slow.
function running:close_waits(open)
  local its, new = new_sockets(self)
  local count = 0
  if new <= (open or 0) then return count end
  for inode in read("/proc/net/tcp"):gmatch " 08 %S+ %S+ %S+%s+%d+%s+%d+ (%d+)" do -- 08 is CLOSE-WAIT
    if its[inode] then
      count = count + 1
    end
  end
  return count
end

function running:is_alive()
  uv.run "nowait"
  return self.process.code == nil
end

-- -- the end of a gateway ---------------------------------------------------------------------------------------------

function running:signal(name)
  self.process.handle:kill(name)
  return self
end

function running:wait_exit(seconds)
  return wait_exit(self.process, seconds)
end

-- Kills the gateway with SIGKILL; asserts nothing.
function running:kill()
  if self:is_alive() then
    self:signal "sigkill"
    self:wait_exit()
  end
  return self
end

local reports = { "AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:", "Assertion `" }

local function complain(self)
  local code, signal, log = self.process.code, self.process.signal, self:log()
  for _, report in ipairs(reports) do
    if log:find(report, 1, true) then
      return report
    end
  end
  if code ~= 0 and code ~= self.accepted_code or signal ~= 0 then
    return ("the gateway ended with code %d, signal %d"):format(code, signal)
  end
end

-- Stops the gateway (with SIGTERM unless `signal` is given) and fails unless it ends well: exit code 0 (or
-- `accepted_code`), no sanitizer report.
function running:stop(signal)
  if self:is_alive() then
    self:signal(signal or "sigterm")
    if not pcall(self.wait_exit, self) then
      self:kill()
      error("the gateway did not stop; its log:\n" .. self:log(), 2)
    end
  end
  local complaint = not self.stopped and complain(self)
  self.stopped = true
  if complaint then
    error(("%s; its log:\n%s"):format(complaint, self:log()), 2)
  end
  return self.process.code
end

-- Called at the end of a spec. A spec that has failed already prints the end of the log and keeps the folder. (busted's
-- error handler swallows the error; the caller shows whether there was one: an unwinding closes from C, the end of a
-- block from Lua.)
function running:__close()
  if debug.getinfo(2, "S").what == "C" then
    pcall(self.stop, self)
    print(("\n  the gateway's log (%s/stderr) ended with:\n    %s"):format(self.dir, (self:log():sub(-3000):gsub("\n", "\n    "))))
    return
  end
  self:stop()
  remove(self.dir)
end

require "spec.helpers.asserts"

return gateway
