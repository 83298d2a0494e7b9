-- docs/dev/architecture.md lists the files that keep state for the whole process or for a thread, apart from gauges,
-- counters and accounts.
local lfs = require "lfs"

local build = (os.getenv "MOONPOOL" or "build/debug/moonpool"):match "^(.*)/[^/]*$"
local objects = build .. "/CMakeFiles/core.dir"

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- The sections of variables that may be written; .data.rel.ro holds constants.
local function is_written(section)
  return (section:find "^%.t?data" or section:find "^%.t?bss") and not section:find("rel.ro", 1, true)
end

-- Names that the sanitizers and the compiler add do not count.
local function is_ours(name) return name:find "^%a" and not name:find "^mp_stat_" and not name:find "^mp_account_" and not name:find "^__" end

local function files_with_state()
  local found = {}
  local nm <close> = assert(io.popen(("cd '%s' && find core -name '*.c.o' | xargs nm -A -f sysv 2>/dev/null"):format(objects)))
  for line in nm:lines() do
    local file, name, section = line:match "^(core/[^:]+)%.o:([^|%s]+)%s*|.*|%s*([^|%s]+)%s*$"
    if file and is_ours(name) and is_written(section) and lfs.attributes(file) then found[file] = name end
  end
  return found
end

describe("state of the whole process", function()
  it("is listed in docs/dev/architecture.md, file by file", function()
    local found, listed, complaints = files_with_state(), {}, {}
    local section = read "docs/dev/architecture.md":match "\n## What the process has once\n(.-)\n## "
    for path in section:gmatch "\n| `(core/[%w_/.]+)`" do listed[path] = true end
    assert.truthy(next(found), "no object files in " .. objects)
    for path, name in pairs(found) do
      if not listed[path] then complaints[#complaints + 1] = path .. " has the variable " .. name .. " and is not listed" end
    end
    for path in pairs(listed) do
      if not found[path] then complaints[#complaints + 1] = path .. " is listed and has no such variable" end
    end
    table.sort(complaints)
    assert.equal("", table.concat(complaints, "\n"))
  end)
end)
