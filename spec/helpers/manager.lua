-- A service manager for a spec, see manager_driver.c: it starts the gateway with listening sockets, stores those that it gets, and starts it again.
--   local m <close> = manager.open { config = {…}, scripts = {…} } ; m:tcp "mcp" ; m:start() ; m.gateway:admin "/status"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local PATIENCE = 20 -- seconds

local manager = {}

local running = {}
running.__index = running

local function take(self, bytes)
  self.rest = self.rest .. bytes
  for line, stop in self.rest:gmatch "([^\n]*)\n()" do
    self.lines[#self.lines + 1] = line
    self.seen_to = stop
  end
  if self.seen_to then self.rest, self.seen_to = self.rest:sub(self.seen_to), nil end
end

-- `options` are those of gateway.prepare; args: further arguments of `moonpool run`; nofile: its limit of descriptors.
function manager.open(options)
  local dir = options.dir or gateway.prepare(options)
  local self = setmetatable({ dir = dir, lines = {}, rest = "", at = 0 }, running)
  local binary = uv.fs_realpath(gateway.binary)
  self.input, self.out = uv.new_pipe(false), uv.new_pipe(false)
  local args = { binary, "run", "moonpool.yaml", "--ready-fd", "{ready}" }
  table.move(options.args or {}, 1, #(options.args or {}), #args + 1, args)
  if options.nofile then
    table.insert(args, 1, ("--nofile=%d:%d"):format(options.nofile, options.nofile))
    table.insert(args, 1, "/usr/bin/prlimit")
  end
  local env = { PWD = dir }
  for key, value in pairs(options.env or {}) do env[key] = value end
  self.process = gateway.spawn((binary:gsub("[^/]*$", "manager_driver")), args, dir, { env = env, cwd = dir, stdin = self.input, stdout = self.out })
  self.pid = self.process.pid
  self.out:read_start(function(_, bytes)
    if bytes then take(self, bytes) end
  end)
  return self
end

function running:command(...)
  self.input:write(table.concat({ ... }, "\t") .. "\n")
  return self
end

-- Waits for the first line after those that were returned: returns its captures, or the line.
function running:wait(pattern, seconds)
  local function what() return pattern .. " among\n  " .. table.concat(self.lines, "\n  ", self.at + 1) .. "\nits log:\n" .. self:log() end
  return wait.for_fact(what, seconds or PATIENCE, function()
    for i = self.at + 1, #self.lines do
      if self.lines[i]:find(pattern) then
        self.at = i
        return self.lines[i]:match(pattern)
      end
    end
  end)
end

-- A socket of a socket unit: returns its port.
function running:tcp(name, port) return tonumber((self:command("tcp", name, port or 0):wait("^socket " .. name .. " %S+:(%d+)$"))) end

function running:unix(name, path) self:command("unix", name, path):wait "^socket " end

-- Makes an object of the process that has become ready, as gateway.start does.
function running:wait_ready()
  local line = self:wait "^ready (.*)$"
  local url = line:match "mcp=(%S+)"
  self.gateway = setmetatable({
    dir = self.dir, pid = tonumber(line:match "pid=(%d+)"), process = self.process, ready = line, url = url, port = tonumber(url:match ":(%d+)/"),
    admin_port = tonumber(line:match "admin=https?://[^:%s]*:(%d+)"),
  }, gateway.running)
  return self.gateway
end

function running:start()
  self:command "start"
  return self:wait_ready()
end

function running:signal(number) return self:command("signal", number) end

-- What is stored: name -> number of sockets.
function running:store()
  local found = {}
  for name, count in self:command "store":wait "^store(.*)$":gmatch " (%S+)=(%d+)" do found[name] = (found[name] or 0) + tonumber(count) end
  return found
end

-- Waits until this is stored.
function running:wait_store(fact)
  return wait.for_fact("a fact about the store", PATIENCE, function() return fact(self:store()) end)
end

-- The notifications so far, without the signs of life.
function running:notes()
  local list = {}
  for _, line in ipairs(self.lines) do
    local note = line:match "^notify (.*)$"
    if note and not note:find "^WATCHDOG" then list[#list + 1] = note end
  end
  return list
end

function running:log()
  local file <close> = assert(io.open(self.dir .. "/stderr", "rb"))
  return file:read "a"
end

function running:__close()
  if not self.process.code then
    self:command "end"
    wait.for_fact("the manager to end", PATIENCE, function() return self.process.code end)
  end
  for _, pipe in ipairs { self.input, self.out } do
    if not pipe:is_closing() then pipe:close() end
  end
  -- A process that is ended by force leaves threads, which ThreadSanitizer calls a leak.
  local log = self:log():gsub("WARNING: ThreadSanitizer: thread leak.-\n=+\nThreadSanitizer: reported 1 warnings\n", "")
  for _, report in ipairs { "Sanitizer", "runtime error:", "Assertion `" } do assert(not log:find(report, 1, true), log) end
  gateway.run_program("/bin/rm", { "-rf", self.dir })
end

return manager
