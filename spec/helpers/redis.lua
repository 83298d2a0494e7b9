-- Redis servers for specs: real ones (Redis, and Valkey where that is installed), and one that answers as a spec says.
local uv = require "luv"
local certificates = require "spec.helpers.certificates"
local children = require "spec.helpers.children"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local redis = {}
local server = {}

local function find(...)
  for _, name in ipairs { ... } do
    for _, folder in ipairs { "/usr/bin/", "/usr/local/bin/" } do
      if uv.fs_access(folder .. name, "X") then return folder .. name end
    end
  end
end

-- Debian's redis-tools and valkey-tools have the program under another name: redis-server and valkey-server add that name,
-- and a service that would begin at once.
local KINDS <const> = { { "redis", "redis-server", "redis-check-rdb" }, { "valkey", "valkey-server", "valkey-check-rdb" } }

-- { name, path } of each kind of server that is installed; with SPEC_REDIS=PATH that program alone.
local installed = { os.getenv "SPEC_REDIS" and { name = "SPEC_REDIS", path = os.getenv "SPEC_REDIS" } or nil }
for _, kind in ipairs(not installed[1] and KINDS or {}) do
  local path = find(kind[2], kind[3])
  if path then installed[#installed + 1] = { name = kind[1], path = path } end
end

-- Specs that are not for each kind run with the last: Valkey where both are installed, as in Debian 13. Debian 12 has
-- Redis alone.
local chosen = (installed[#installed] or {}).path

--- The path of the server's program, or nil: specs that need one are skipped.
function redis.find() return chosen end

--- A `describe` whose specs run with each kind of server that is installed.
function redis.each(describe, setup, teardown)
  if #installed < 2 then return describe end
  return function(name, body)
    for _, one in ipairs(installed) do
      describe(name .. " (" .. one.name .. ")", function()
        local before
        setup(function() before, chosen = chosen, one.path end)
        teardown(function() chosen = before end)
        body()
      end)
    end
  end
end

--- `it`, or `pending` where there is no server.
function redis.it(it, pending)
  if redis.find() then return it end
  return function(name) pending(name .. " (redis-tools is not installed)") end
end

--- The output of a command of the server's own client.
function server:cli(...)
  local args = { "-h", "127.0.0.1", "-p", tostring(self.port) }
  if self.password then table.move({ "--no-auth-warning", "-a", self.password }, 1, 3, #args + 1, args) end
  if self.tls then table.move({ "--tls", "--insecure" }, 1, 2, #args + 1, args) end
  table.move({ ... }, 1, select("#", ...), #args + 1, args)
  local _, out, err = gateway.run_program(find("redis-cli", "valkey-cli"), args)
  return ((out .. err):gsub("\n$", ""))
end

function server:kill(signal)
  self.handle:kill(signal or "sigkill")
end

--- Kills the server and waits for its end.
function server:stop()
  if not self.code then self.handle:kill "sigkill" end
  wait.for_fact("redis-server to end", 20, function() return self.code end)
end

function server:__close()
  self:stop()
  for _, file in ipairs(self.files) do os.remove(file) end
  os.remove(self.dir)
end

--- Starts the program (again, after stop()) and waits until it answers.
function server:begin()
  self.code = nil
  local handle, pid = uv.spawn(self.program, { args = self.args, cwd = self.dir, env = self.env },
    function(exit)
      self.code = exit
      children.alive[self.pid] = nil
      self.handle:close()
    end)
  self.handle, self.pid = assert(handle, pid), pid
  children.alive[pid] = true
  wait.for_fact("redis-server to answer", 20, function()
    local answer = self.code or self:cli "PING"
    return self.code or answer == "PONG" or answer:find("NOAUTH", 1, true) -- where its configuration turns the default user off
  end)
  assert(not self.code, "redis-server has ended")
end

--- A server without persistence. `options`: password, tls (a certificate of certificates.make), port, args (further
--- ones), env (its variables).
function redis.start(options)
  options = options or {}
  local self = setmetatable({ port = options.port or free_port(), password = options.password, tls = options.tls, files = {} },
    { __index = server, __close = server.__close })
  self.dir = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/redis.XXXXXX"))
  self.at = "127.0.0.1:" .. self.port
  self.program = self.dir .. "/redis-server"      -- the program looks at its name
  assert(uv.fs_symlink(redis.find(), self.program))
  self.args = { "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning", "--logfile", self.dir .. "/log" }
  self.files[1], self.files[2] = self.dir .. "/log", self.program
  local function add(...) table.move({ ... }, 1, select("#", ...), #self.args + 1, self.args) end
  if options.password then add("--requirepass", options.password) end
  if options.tls then
    for _, name in ipairs { "own", "key" } do
      self.files[#self.files + 1] = self.dir .. "/" .. name
      certificates.write(self.dir .. "/" .. name, options.tls[name])
    end
    add("--port", "0", "--tls-port", tostring(self.port), "--tls-cert-file", self.dir .. "/own", "--tls-key-file", self.dir .. "/key",
      "--tls-auth-clients", "no", "--tls-ca-cert-file", self.dir .. "/own")
  else
    add("--port", tostring(self.port))
  end
  add(table.unpack(options.args or {}))
  if options.env then
    self.env = {}
    for name, value in pairs(options.env) do self.env[#self.env + 1] = name .. "=" .. value end
  end
  self:begin()
  return self
end

--- A sentinel that watches `primary`, a server, by the name `main`; `quorum` of them agree that it is gone.
function redis.sentinel(primary, quorum)
  local self = setmetatable({ port = free_port(), files = {} }, { __index = server, __close = server.__close })
  self.dir = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/redis.XXXXXX"))
  self.at, self.program = "127.0.0.1:" .. self.port, self.dir .. "/redis-sentinel"
  assert(uv.fs_symlink(redis.find(), self.program))
  self.files = { self.program, self.dir .. "/conf", self.dir .. "/log" }
  local file <close> = assert(io.open(self.dir .. "/conf", "w"))
  file:write(([[
port %d
bind 127.0.0.1
logfile "%s/log"
sentinel monitor main 127.0.0.1 %d %d
sentinel down-after-milliseconds main 500
sentinel failover-timeout main 3000
]]):format(self.port, self.dir, primary.port, quorum))
  file:close()
  self.args = { self.dir .. "/conf", "--sentinel" }
  self:begin()
  return self
end

--- A primary, its replica, and three sentinels, two of which must agree that it is gone; closing it ends all. Fields:
--- primary, replica, guards (the sentinels), sentinels (their addresses).
function redis.guarded()
  local primary = redis.start()
  local self = { primary = primary, replica = redis.start { args = { "--replicaof", "127.0.0.1 " .. primary.port } }, sentinels = {} }
  local guards = {}
  for i = 1, 3 do
    guards[i] = redis.sentinel(primary, 2)
    self.sentinels[i] = guards[i].at
  end
  wait.for_fact("the replica to follow", 20, function() return self.replica:cli("INFO", "replication"):find "master_link_status:up" end)
  wait.for_fact("the sentinels to know each other", 30, function()
    for i = 1, 3 do
      local text = guards[i]:cli("SENTINEL", "MASTER", "main")
      if not (text:find "num%-other%-sentinels\n2" and text:find "num%-slaves\n1") then return false end
    end
    return true
  end)
  self.guards = guards
  return setmetatable(self, { __close = function()
    for _, one in ipairs { guards[1], guards[2], guards[3], self.replica, primary } do one:__close() end
  end })
end

-- -- gateways ----------------------------------------------------------------------------------------------------------

--- A gateway with the tool of spec.helpers.code, whose scripts may connect to `nets`, an address or a list. `more`:
--- further options of code.start.
function redis.gateway(nets, more)
  local options = { workers = 1, config = { scripts = { allow = { net = type(nets) == "table" and nets or { nets } } } } }
  for name, value in pairs(more or {}) do options[name] = value end
  options.constants = options.constants or {}
  options.constants.redis_idle_ms = options.constants.redis_idle_ms or 200
  return require "spec.helpers.code".start(options)
end

--- Lua text that opens `cache` at an address or URL; `options`: Lua text for further ones, after a comma.
function redis.open(at, options)
  return ("local cache = try(redis.open { %q %s }) "):format(at:find "://" and at or "redis://" .. at, options or "")
end

-- -- a server that answers as told -------------------------------------------------------------------------------------

local told = {}

function told:__close()
  if not self.server:is_closing() then self.server:close() end
  for _, client in ipairs(self.clients) do
    if not client:is_closing() then client:close() end
  end
end

--- Takes connections and calls answer(command, client, self) for each command, a list of its words: a text that it
--- returns is sent. Commands of the login are answered, unless `options.login` is false. Fields: port, at, clients,
--- commands (all that have come).
function redis.told(answer, options)
  local self = setmetatable({ server = uv.new_tcp(), clients = {}, commands = {} }, { __close = told.__close })
  self.server:bind("127.0.0.1", 0)
  self.server:listen(128, function()
    local client, rest = uv.new_tcp(), ""
    self.server:accept(client)
    self.clients[#self.clients + 1] = client
    client:read_start(function(_, bytes)
      if not bytes then
        if not client:is_closing() then client:close() end
        return
      end
      rest = rest .. bytes
      while true do
        local count, at = rest:match "^%*(%d+)\r\n()"
        if not count then return end
        local words = {}
        for i = 1, tonumber(count) do
          local size, from = rest:match("^%$(%d+)\r\n()", at)
          if not size or #rest < from + size + 1 then return end
          words[i], at = rest:sub(from, from + size - 1), from + tonumber(size) + 2
        end
        rest = rest:sub(at)
        self.commands[#self.commands + 1] = words
        local text
        if words[1] == "PING" and #words == 1 and (options or {}).login ~= false then text = "+PONG\r\n" else text = answer(words, client, self) end
        if text and not client:is_closing() then client:write(text) end
      end
    end)
  end)
  self.port = self.server:getsockname().port
  self.at = "127.0.0.1:" .. self.port
  return self
end

return redis
