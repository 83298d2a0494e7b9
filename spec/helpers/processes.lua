-- A gateway of several processes, as after an upgrade, whose processes a spec starts one by one (joined_processes.c).
--   local p <close> = processes.new()
--   local old, new = p:start { … }, p:start { … };   p:is_newest(new)
-- They end with `p`.
local uv = require "luv"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local processes = {}
processes.__index = processes

local KEY <const> = "0123456789abcdef"

local function write(path, text)
  local file <close> = assert(io.open(path .. ".new", "wb"))
  file:write(text)
  file:close()
  assert(os.rename(path .. ".new", path))
end

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

function processes.new()
  local p = setmetatable({ folder = gateway.new_folder(), all = {}, key = KEY }, processes)
  write(p.folder .. "/key", KEY)
  return p
end

local function numbers(folder)
  local found = {}
  local entries = assert(uv.fs_scandir(folder))
  for name in function() return uv.fs_scandir_next(entries) end do
    local number = name:match "^(%d+)%.mcp%.sock$"
    if number then found[tonumber(number)] = true end
  end
  return found
end

-- What the process `g` knows: the number of the newest, and the set of others.
local function known(p, g)
  local text = read(("%s/%d.knows"):format(p.folder, g.number)) or ""
  local newest, others = tonumber(text:match "^(%d+):"), {}
  for number in text:gmatch " (%d+)" do others[tonumber(number)] = true end
  return newest, others
end

function processes:settle()
  wait.for_fact("the processes to know each other", 20, function()
    local living = numbers(self.folder)
    for _, g in ipairs(self.all) do
      if living[g.number] then
        local newest, others = known(self, g)
        if self.newest and newest ~= self.newest then return false end
        for number in pairs(living) do
          if number ~= g.number and not others[number] then return false end
        end
        for number in pairs(others) do
          if not living[number] then return false end
        end
      end
    end
    return true
  end)
end

--- Starts a process as gateway.start does. It knows the others, and they it, when this returns.
function processes:start(options)
  options = options or {}
  options.env = options.env or {}
  options.env.SPEC_PROCESSES = self.folder
  local before = numbers(self.folder)
  local g = gateway.start(options)
  for number in pairs(numbers(self.folder)) do
    if not before[number] then g.number = number end
  end
  g.status = function() return self:own_status(g) end
  self.all[#self.all + 1] = g
  self:settle()
  self:own_status(g) -- the socket for others, which keeps descriptors in reserve, may open after "ready": it serves now
  g.baseline_fds = g:fds()
  return g
end

--- The status of the process `g` alone; /status of its admin listener has the sums of all processes.
function processes:own_status(g)
  local answer = client.request(("%s/%d.admin.sock"):format(self.folder, g.number), { path = "/status", headers = { ["moonpool-process"] = g.number } })
  return assert(answer:json(), "the status is no JSON: " .. answer.body)
end

--- From now on `g` is the newest one.
function processes:is_newest(g)
  self.newest = g.number
  write(self.folder .. "/newest", tostring(g.number))
  self:settle()
end

--- The process `g` alone takes another one for the newest.
function processes:tell(g, number)
  write(("%s/%d.newest"):format(self.folder, g.number), tostring(number))
  wait.for_fact("the process to take another one for the newest", 20, function() return known(self, g) == number end)
end

--- Removes the socket of a process that was killed, which would stay otherwise.
function processes:forget(g)
  os.remove(("%s/%d.mcp.sock"):format(self.folder, g.number))
  self:settle()
end

--- Two processes, of which each has the tool `place`, and the second one is the newest: p, old, new, and what
--- `options.before(old)` returned while the old one was alone. `options`: before, scripts, config, files, constants.
function processes.two(options)
  local p = processes.new()
  options = options or {}
  local function start(place)
    local scripts = { ["tools/place.lua"] = ("--- Says which process runs.\nreturn function() return %q end\n"):format(place) }
    for path, text in pairs(options.scripts or {}) do scripts[path] = text end
    return p:start { scripts = scripts, config = options.config, files = options.files, workers = options.workers, constants = options.constants }
  end
  local old = start "old"
  local kept = options.before and options.before(old)
  local new = start "new"
  p:is_newest(new)
  return p, old, new, kept
end

--- For `before`: a client of this revision, which the old process has opened a session for.
function processes.opens(revision, options)
  return function(old) return old:client(revision, options) end
end

--- Stops all threads of a gateway. They go on when the result is closed.
function processes.stop(g)
  uv.kill(g.pid, "sigstop")
  wait.for_fact("all threads to stand still", 10, function()
    local threads = assert(uv.fs_scandir(("/proc/%d/task"):format(g.pid)))
    for id in function() return uv.fs_scandir_next(threads) end do
      local file <close> = io.open(("/proc/%d/task/%s/stat"):format(g.pid, id), "rb")
      if file and file:read("a"):match "%) (%a)" ~= "T" then return false end
    end
    return true
  end)
  return setmetatable({}, { __close = function() uv.kill(g.pid, "sigcont") end })
end

--- The client goes on with another process, as clients do whose next connection another one accepts.
function processes.move(c, g)
  c.gateway, c.kept = g, nil
  return c
end

--- The text of a tool's result.
function processes.text(c, tool, arguments)
  return c:result("tools/call", { name = tool, arguments = arguments or {} }).content[1].text
end

function processes:path(g) return ("%s/%d.mcp.sock"):format(self.folder, g.number) end

function processes:__close(failure)
  local ok, why = true, nil
  for i = #self.all, 1, -1 do
    local g = self.all[i]
    local ended, trouble = pcall(g.stop, g)
    if ok then ok, why = ended, trouble end
    if failure then print(("\n  the log of process %d ended with:\n    %s"):format(g.number, (g:log():sub(-3000):gsub("\n", "\n    ")))) end
    os.execute("rm -rf '" .. g.dir .. "'")
  end
  os.execute("rm -rf '" .. self.folder .. "'")
  if not ok then error(why, 0) end
end

return processes
