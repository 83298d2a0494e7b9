-- PostgreSQL servers for specs. The data of a new server are made once a run, and copied for each. The server refuses to
-- run as root: then it runs as the user `postgres`.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local children = require "spec.helpers.children"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local postgres = {}
local server = {}

local NEWEST <const>, OLDEST <const> = 20, 14

--- The folder of the server's programs, or nil: specs that need one are skipped.
function postgres.find()
  for version = NEWEST, OLDEST, -1 do
    local folder = ("/usr/lib/postgresql/%d/bin/"):format(version)
    if uv.fs_access(folder .. "postgres", "X") and (uv.getuid() ~= 0 or uv.fs_access("/usr/bin/setpriv", "X")) then return folder end
  end
end

--- `it`, or `pending` where there is no server.
function postgres.it(it, pending)
  if postgres.find() then return it end
  return function(name) pending(name .. " (postgresql is not installed)") end
end

-- The command as the user that may run a server.
local function as_user(program, args)
  if uv.getuid() ~= 0 then return program, args end
  local all = { "--reuid=postgres", "--regid=postgres", "--clear-groups", program }
  table.move(args, 1, #args, #all + 1, all)
  return "/usr/bin/setpriv", all
end

local function run(program, args)
  local code, out, err = gateway.run_program(as_user(program, args))
  assert(code == 0, out .. err)
  return out
end

local function new_folder(name)
  local tmp = os.getenv "TMPDIR" or "/tmp"
  local path = assert(uv.fs_mkdtemp(tmp .. "/" .. name .. ".XXXXXX"))
  if uv.getuid() == 0 then
    if tmp ~= "/tmp" then uv.fs_chmod(tmp, 457) end -- 0711: the folder of a run of ./dev test is root's alone
    local passwd <close> = assert(io.open "/etc/passwd")
    local uid, gid = passwd:read "a":match "\npostgres:[^:]*:(%d+):(%d+)"
    uv.fs_chown(path, math.tointeger(uid), math.tointeger(gid))
  end
  return path
end

-- The data that each server begins with. The list of children is one for the whole run, and so is this.
local function template()
  if not children.postgres_data then
    local path = new_folder "pgdata"
    run(postgres.find() .. "initdb", { "--no-sync", "-A", "trust", "-U", "app", "-D", path .. "/data", "--encoding=UTF8", "--locale=C" })
    children.postgres_data = path
  end
  return children.postgres_data .. "/data"
end

--- Output of SQL, as psql prints it without a frame.
function server:sql(text)
  local code, out, err = gateway.run_program(postgres.find() .. "psql", { "-X", "-A", "-t", "-q", "-h", self.folder, "-p", tostring(self.port), "-U", "app",
    "-d", "postgres", "-c", text })
  return code == 0 and (out:gsub("\n$", "")) or nil, err
end

function server:kill(signal) self.handle:kill(signal or "sigkill") end

-- The processes of the server: itself, and those of its connections.
function server:pids()
  local _, out = gateway.run_program("/usr/bin/pgrep", { "-P", tostring(self.pid) })
  local list = { self.pid }
  for pid in out:gmatch "%d+" do list[#list + 1] = math.tointeger(pid) end
  return list
end

--- Stops all processes of the server, and lets them go on.
function server:freeze() for _, pid in ipairs(self:pids()) do uv.kill(pid, "sigstop") end end
function server:thaw() for _, pid in ipairs(self:pids()) do uv.kill(pid, "sigcont") end end

--- Ends the server at once, without a shutdown of its own, and waits for that.
function server:stop()
  if not self.code then self.handle:kill "sigquit" end
  wait.for_fact("postgres to end", 20, function() return self.code end)
end

function server:__close()
  if not self.code then self:thaw() end
  self:stop()
  gateway.run_program("/bin/rm", { "-rf", self.folder })
end

--- Starts the program (again, after stop()) and waits until it answers.
function server:begin()
  self.code = nil
  local program, args = as_user(postgres.find() .. "postgres", self.args)
  local log = assert(uv.fs_open(self.folder .. "/log", "a", 420))
  local handle, pid = uv.spawn(program, { args = args, cwd = self.folder, stdio = { nil, nil, log } }, function(exit)
    self.code = exit
    children.alive[self.pid] = nil
    self.handle:close()
  end)
  uv.fs_close(log)
  self.handle, self.pid = assert(handle, pid), pid
  children.alive[pid] = true
  wait.for_fact("postgres to answer", 20, function() return self.code or self:sql "select 1" == "1" end)
  assert(not self.code, "postgres has ended")
end

--- A server with the database "postgres" and the user "app". `options`: password (of the user "reader", too), tls (a
--- certificate of certificates.make), args (further ones).
function postgres.start(options)
  options = options or {}
  local self = setmetatable({ port = free_port(), folder = new_folder "postgres" }, { __index = server, __close = server.__close })
  run("/bin/cp", { "-a", template(), self.folder .. "/data" })
  self.at = "127.0.0.1:" .. self.port
  self.url = "postgres://app@" .. self.at .. "/postgres"
  self.socket = self.folder .. "/.s.PGSQL." .. self.port
  self.args = { "-D", self.folder .. "/data", "-p", tostring(self.port), "-k", self.folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
    "-c", "log_destination=stderr" }
  local function add(...) table.move({ ... }, 1, select("#", ...), #self.args + 1, self.args) end
  local function put(name, text)
    local path = os.tmpname()
    certificates.put(path, text)
    gateway.run_program("/bin/chmod", { "0644", path })
    run("/bin/cp", { path, self.folder .. "/" .. name })
    run("/bin/chmod", { "0600", self.folder .. "/" .. name })
    os.remove(path)
    return self.folder .. "/" .. name
  end
  if options.tls then
    add("-c", "ssl=on", "-c", "ssl_cert_file=" .. put("own", options.tls.own), "-c", "ssl_key_file=" .. put("key", options.tls.key))
  end
  if options.hba then add("-c", "hba_file=" .. put("hba", options.hba)) end
  add(table.unpack(options.args or {}))
  self:begin()
  return self
end

--- The SQL of statements that run now.
function server:running()
  return self:sql "select count(*) from pg_stat_activity where state = 'active' and application_name = 'moonpool'"
end

return postgres
