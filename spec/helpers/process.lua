-- Runs the program of process_driver.c for a spec, which starts processes as the gateway does for its upstreams.
--   local d <close> = process.driver() ; d:start(1, { "cat" }) ; d:send(1, "x") ; d:wait "^line 1 x$"
local uv = require "luv"
local driven = require "spec.helpers.driven"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local PATIENCE = 20 -- seconds

local process = {}

local driver = setmetatable({}, { __index = gateway.running })
driver.__index = driver

-- Writes a command of process_driver.c.
driver.command = driven.command

-- Starts `argv` as process `id`. `options` are the keys of the command; env is a list of "NAME=value".
function driver:start(id, argv, options)
  local words = { "start", id }
  for key, value in pairs(options or {}) do
    for _, one in ipairs(type(value) == "table" and value or { value }) do words[#words + 1] = key .. "=" .. one end
  end
  words[#words + 1] = "--"
  table.move(argv, 1, #argv, #words + 1, words)
  return self:command(table.unpack(words))
end

-- Starts a program of sh.
function driver:sh(id, text, options)
  return self:start(id, { "sh", "-c", text }, options)
end

function driver:send(id, text)
  return self:command("send", id, text)
end

-- Waits for the first line that matches and was not returned yet: returns its captures, or the line.
function driver:wait(pattern, seconds)
  local function what()
    local from = math.max(1, #self.lines - 20)
    return pattern .. "; the last lines are:\n  " .. table.concat(self.lines, "\n  ", from)
  end
  return wait.for_fact(what, seconds or PATIENCE, function()
    for i, line in ipairs(self.lines) do
      if line:find(pattern) then
        table.remove(self.lines, i)
        return line:match(pattern)
      end
    end
  end)
end

-- The number of processes that have not ended, including those that are ending in the background.
function driver:count()
  return tonumber(self:command("count"):wait "^count (%d+)$")
end

function driver:wait_none(seconds)
  wait.for_fact("all processes to be gone", seconds or PATIENCE, function() return self:count() == 0 end)
end

function driver:stop()
  if not self.input:is_closing() then
    self:command "stop"
    self:wait_exit(PATIENCE)
    driven.close_pipes(self)
  end
end

function driver:kill()
  uv.kill(self.pid, "sigkill")
  wait.for_fact("the driver to be gone", PATIENCE, function() return self.process.code end)
  self.is_killed = true
end

function driver:__close()
  if self.process.code then
    driven.close_pipes(self)
  else
    self:stop()
    assert(self.process.code == 0 and self.process.signal == 0, "the driver ended with code " .. self.process.code .. ":\n" .. self:log())
  end
end

-- `options`: env
function process.driver(options)
  options = options or {}
  return driven.start(setmetatable({ dir = gateway.new_folder() }, driver), "process_driver", {}, options.env)
end

-- -- facts of /proc ---------------------------------------------------------------------------------------------------

local function read(path)
  local file = io.open(path)
  local text = file and file:read "a"
  if file then file:close() end
  return text
end

-- True if the process has ended; a zombie has ended.
function process.is_gone(pid)
  local text = read("/proc/" .. pid .. "/stat")
  return text == nil or text:match "^.*%) (%a)" == "Z"
end

-- The process ids of all descendants of `pid`, zombies included.
function process.below(pid)
  local parent, list = {}, {}
  for name in require "lfs".dir "/proc" do
    local text = name:find "^%d+$" and read("/proc/" .. name .. "/stat")
    if text then parent[name] = text:match "^.*%) %a (%d+)" end
  end
  local function add(above)
    for child, of in pairs(parent) do
      if of == above then
        list[#list + 1] = child
        add(child)
      end
    end
  end
  add(tostring(pid))
  return list
end

-- A number in kilobytes, or another field, of /proc/PID/status.
function process.status(pid, field)
  return (read("/proc/" .. pid .. "/status") or ""):match("\n" .. field .. ":%s*(%S+)")
end

return process
