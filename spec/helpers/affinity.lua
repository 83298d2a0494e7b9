-- A gateway, or one thread of it, that gets hardly any processor time: it shares one processor with a process that
-- computes without end.
--   local hog <close> = affinity.hog(affinity.first_core())
local uv = require "luv"
local departures = require "spec.helpers.departures"

local affinity = {}

-- A processor that this process may use.
function affinity.first_core()
  local file <close> = assert(io.open "/proc/self/status")
  return file:read "a":match "Cpus_allowed_list:%s*(%d+)"
end

-- The id of the thread of process `pid` that is called `name`.
function affinity.thread(pid, name)
  local entries = assert(uv.fs_scandir("/proc/" .. pid .. "/task"))
  for id in uv.fs_scandir_next, entries do
    local file <close> = io.open("/proc/" .. pid .. "/task/" .. id .. "/comm")
    if file and file:read "l" == name then return id end
  end
  error("no thread of process " .. pid .. " is called " .. name)
end

-- A process that computes on processor `core`; it runs when this returns.
function affinity.hog(core)
  return departures.spawn("/usr/bin/taskset", { "-c", core, departures.interpreter, "-e", [[
    io.write "running\n"
    io.flush()
    while true do end]] })
end

return affinity
