-- A service manager for a spec, see manager_driver.c: it starts the gateway with listening sockets, stores those that
-- it gets, and starts it again.
--   local m <close> = manager.open { config = {…}, scripts = {…} } ; m:tcp "mcp" ; m:start() ; m.gateway:admin "/status"
local uv = require "luv"
local driven = require "spec.helpers.driven"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local PATIENCE = 20 -- seconds

local manager = {}

local running = {}
running.__index = running

-- `options` are those of gateway.prepare; nofile: the limit of descriptors of the gateway; binary: another program;
-- env: more variables; constants: as for gateway.start; dir: a folder that has its moonpool.yaml.
function manager.open(options)
  local dir = options.dir or gateway.prepare(options)
  local args = { options.binary or uv.fs_realpath(gateway.binary), "run", "moonpool.yaml", "--ready-fd", "{ready}" }
  if options.nofile then
    table.insert(args, 1, ("--nofile=%d:%d"):format(options.nofile, options.nofile))
    table.insert(args, 1, "/usr/bin/prlimit")
  end
  local env = gateway.variables(options)
  env.PWD = dir
  return driven.start(setmetatable({ dir = dir, at = 0 }, running), "manager_driver", args, env)
end

running.command = driven.command

-- Waits for the first line that matches, after the one that the call before has returned: returns its captures, or the
-- line.
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

-- The manager stops reading, and the gateway's socket to it is full, until m:command "hear".
function running:deafen() self:command("deaf"):wait "^deaf$" end

function running:signal(number) return self:command("signal", number) end

-- Sends the signals, each when `count` more connections of the clients `k` (knocking.lua) were answered, and waits for
-- the next process each time. Then `count` more are answered, and the clients end.
function running:restart_under(k, count, signals)
  self:command("restart", "on")
  for _, signal in ipairs(signals) do
    k:wait(count)
    self:signal(signal)
    self:wait_ready()
  end
  k:wait(count)
  k:stop()
end

-- What is stored: name -> number of sockets.
function running:store()
  local found = {}
  for name, count in self:command "store":wait "^store(.*)$":gmatch " (%S+)=(%d+)" do found[name] = (found[name] or 0) + tonumber(count) end
  return found
end

-- Waits until `fact`, called with the result of running:store, is true, and returns what it gives.
function running:wait_store(fact)
  return wait.for_fact("a fact about the store", PATIENCE, function() return fact(self:store()) end)
end

-- The notifications so far, without those of the watchdog.
function running:notes()
  local list = {}
  for _, line in ipairs(self.lines) do
    local note = line:match "^notify (.*)$"
    if note and not note:find "^WATCHDOG" then list[#list + 1] = note end
  end
  return list
end

running.log = gateway.running.log

function running:__close()
  if not self.process.code then
    self:command "end"
    wait.for_fact("the manager to end", PATIENCE, function() return self.process.code end)
  end
  driven.close_pipes(self)
  -- A process that is ended by force leaves threads, which ThreadSanitizer calls a leak.
  local log = self:log():gsub("WARNING: ThreadSanitizer: thread leak.-\n=+\nThreadSanitizer: reported 1 warnings\n", "")
  for _, report in ipairs { "Sanitizer", "runtime error:", "Assertion `" } do assert(not log:find(report, 1, true), log) end
  gateway.run_program("/bin/rm", { "-rf", self.dir })
end

return manager
