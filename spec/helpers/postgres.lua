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

--- True if gateways find libpq.
function postgres.has_libpq()
  for _, name in ipairs { "x86_64", "aarch64" } do
    if uv.fs_stat(("/usr/lib/%s-linux-gnu/libpq.so.5"):format(name)) then return true end
  end
  return false
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

--- How many statements of gateways run now, as a text.
function server:running()
  return self:sql "select count(*) from pg_stat_activity where state = 'active' and application_name = 'moonpool'"
end

--- Waits until so many statements of gateways run.
function server:wait_running(count)
  wait.for_fact(count .. " statements to run", 20, function() return self:running() == tostring(count) end)
end

-- -- gateways ----------------------------------------------------------------------------------------------------------

--- A gateway with the tool of spec.helpers.code, whose scripts may connect to `nets`, an address or a list. `more`:
--- further options of code.start.
function postgres.gateway(nets, more)
  local options = { workers = 1, config = { scripts = { allow = { net = type(nets) == "table" and nets or { nets } } } } }
  for name, value in pairs(more or {}) do options[name] = value end
  options.constants = options.constants or {}
  options.constants.postgres_idle_ms = options.constants.postgres_idle_ms or 200
  local sanitizer = gateway.binary:match "([at]san)/" -- copies are slow there
  if sanitizer then options.constants.postgres_turn_us = sanitizer == "asan" and 300000 or 1000000 end
  return require "spec.helpers.code".start(options)
end

--- Lua text that opens `db` at a URL; `options`: Lua text for further ones, after a comma.
function postgres.open(url, options) return ("local db = try(postgres.open { %q %s }) "):format(url, options or "") end

-- -- a server that answers as told -------------------------------------------------------------------------------------

local told = {}

function told:__close()
  if not self.listener:is_closing() then self.listener:close() end
  for _, peer in ipairs(self.peers) do
    if not peer:is_closing() then peer:close() end
  end
end

--- A message of the protocol.
function postgres.message(tag, bytes) return tag .. (">I4"):pack(#bytes + 4) .. bytes end

postgres.ready = postgres.message("Z", "I")
--- What lets a client in without a password.
postgres.welcome = postgres.message("R", (">I4"):pack(0)) .. postgres.ready

--- One row with one column of the type with this OID, and the end of the statement.
function postgres.row(oid, text)
  return postgres.message("2", "") .. postgres.message("T", (">I2"):pack(1) .. "v\0" .. (">I4I2I4I2I4I2"):pack(0, 0, oid, 65535, 0xffffffff, 0))
    .. postgres.message("D", (">I2I4"):pack(1, #text) .. text) .. postgres.message("C", "SELECT 1\0")
end

--- Sends the texts of next_text() one after another, for as long as the peer takes them. Returns { bytes = those that
--- were taken }.
function postgres.pour(peer, next_text)
  local sent = { bytes = 0 }
  local function go()
    if peer:is_closing() then return end
    local text = next_text()
    peer:write(text, function(failed)
      if failed then return end
      sent.bytes = sent.bytes + #text
      go()
    end)
  end
  go()
  return sent
end

--- A server that answers a login by `greeting`, bytes or a function that writes to the peer, and what comes until each Sync by
--- answer(tags, peer): bytes; nil closes the connection; false sends nothing. Fields: port, at, url, logins, peers.
function postgres.told(greeting, answer)
  local self = setmetatable({ listener = uv.new_tcp(), logins = 0, peers = {} }, { __index = told, __close = told.__close })
  assert(self.listener:bind("127.0.0.1", 0))
  self.port = self.listener:getsockname().port
  self.at = "127.0.0.1:" .. self.port
  self.url = ("postgres://app@%s/shop"):format(self.at)
  assert(self.listener:listen(64, function()
    local peer, input, has_begun, tags = uv.new_tcp(), "", false, ""
    self.listener:accept(peer)
    self.peers[#self.peers + 1] = peer
    local function reply(bytes)
      if bytes then return peer:write(bytes) end
      if bytes == nil and not peer:is_closing() then peer:close() end
    end
    peer:read_start(function(_, bytes)
      if not bytes then return peer:is_closing() or peer:close() end
      input = input .. bytes
      while not peer:is_closing() do
        local head = has_begun and 1 or 0
        if #input < head + 4 then return end
        local size = (">I4"):unpack(input, head + 1)
        if #input < head + size then return end
        local tag = input:sub(1, head)
        input = input:sub(head + size + 1)
        tags = tags .. tag
        if not has_begun then
          has_begun, self.logins = true, self.logins + 1
          if type(greeting) == "function" then greeting(peer) else reply(greeting) end
        elseif tag == "S" then
          reply(answer(tags, peer))
          tags = ""
        end
      end
    end)
  end))
  return self
end

--- An answer(tags) of told() that gives each statement a row.
function postgres.with_row(oid, text)
  return function(tags)
    local parsed = tags:find("P", 1, true) and postgres.message("1", "") or ""
    return parsed .. (tags:find("E", 1, true) and postgres.row(oid, text) or "") .. postgres.ready
  end
end

return postgres
