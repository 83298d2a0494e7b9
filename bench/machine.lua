-- machine.lua: what docs/benchmarks.md says about the machine and the versions of a run.
local uv = require "luv"

local machine = {}

-- The first line that a command prints; "" where it does not exist.
local function said(command)
  local pipe <close> = assert(io.popen(command .. " 2>&1"))
  return pipe:read "l" or ""
end

-- The version of a library that is built from source.
local function built(library)
  for line in io.lines "cmake/dependencies.txt" do
    local name, version = line:match "^(%S+)%s+(%d[%w.]*)"
    if name == library then return version end
  end
  error("cmake/dependencies.txt has no library " .. library)
end

--- { cpu, cores, memory, load, date, moonpool, versions }, texts but for `cores` and the list `versions`. `binary`: the
--- path of the program.
function machine.describe(binary)
  local cpus = uv.cpu_info()
  local one, five, fifteen = uv.loadavg()
  return {
    cpu = (cpus[1].model:gsub("%s+", " "):gsub("%s*@.*$", "")), cores = #cpus, memory = ("%.0f GB"):format(uv.get_total_memory() / 2 ^ 30),
    load = ("%.1f %.1f %.1f"):format(one, five, fifteen), date = os.date "!%Y-%m-%d",
    moonpool = said(binary .. " --version"):gsub("^moonpool ", "") .. " (" .. said "git rev-parse --short HEAD" .. ")",
    versions = {
      "Linux " .. uv.os_uname().release, "libh2o " .. built "h2o", "Lua " .. built "lua",
      (said("/usr/sbin/nginx -v"):gsub("^nginx version: ", "")), said "gcc --version",
    },
  }
end

--- Two lines of the page.
function machine.text(it)
  return ("%s, %d cores, %s of memory; load average %s when the run began. %s.\nmoonpool %s; %s.\n"):format(it.cpu, it.cores, it.memory, it.load, it.date,
    it.moonpool, table.concat(it.versions, ", "))
end

return machine
