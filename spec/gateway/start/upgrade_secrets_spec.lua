-- The keys that an upgrade hands on, as text in messages between two processes: they stay in the memory of neither once
-- the messages are read.
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"

local LARGEST <const> = 1 << 30 -- bytes: longer mappings are not read, since a sanitizer maps terabytes

-- How often the pattern is in memory that the process can write.
local function count_in_memory(pid, pattern)
  local count = 0
  local memory <close> = assert(io.open("/proc/" .. pid .. "/mem", "rb"))
  memory:setvbuf "no"
  for line in io.lines("/proc/" .. pid .. "/maps") do
    local from, to = line:match "^(%x+)%-(%x+) rw"
    from, to = tonumber(from or "", 16), tonumber(to or "", 16)
    if from and to - from <= LARGEST and memory:seek("set", from) then
      local bytes = memory:read(to - from) or ""
      count = count + select(2, bytes:gsub(pattern, ""))
    end
  end
  return count
end

describe("after an upgrade", function()
  it("no message with keys is left in the memory of both processes", function()
    local runtime = gateway.new_folder()
    local g <close> = upgrading.start_quick { workers = 1, env = { RUNTIME_DIRECTORY = runtime } }
    local session <close> = g:client "2025-11-25" -- a session, so that the older process lives on
    local older = g.pid
    local newest = g:must_upgrade()
    local folder = (runtime .. "/hop"):gsub("%p", "%%%0")
    for _, pid in ipairs { older, newest } do
      -- proves that the search finds something: the name of the folder is in memory
      assert.is_true(count_in_memory(pid, folder) > 0)
      assert.equal(0, count_in_memory(pid, folder .. "%z" .. ("%x"):rep(32)), pid == older and "the older one" or "the newest one")
    end
    session:delete()
    g:stop()
    gateway.run_program("/bin/rm", { "-r", runtime })
  end)
end)
