-- Memory that each turn needs is not given back in each turn: it would be faulted in again, page by page.
local gateway = require "spec.helpers.gateway"
local offering = require "spec.helpers.offering"

local CONNECTIONS <const>, TURNS <const> = 300, 30
-- Memory that is given back in each turn costs each call a fault or more. What is unused for seconds is given back, too:
-- on a busy machine, where the turns take so long, a tenth of a fault.
local MOST <const> = 0.3

-- Faults of the process that needed no disk.
local function faults(pid)
  local file <close> = assert(io.open(("/proc/%d/stat"):format(pid)))
  local after = file:read("a"):match "%) (.*)"
  local count, field = nil, 0
  for word in after:gmatch "%S+" do
    field = field + 1
    if field == 8 then count = tonumber(word) end
  end
  return count
end

describe("three hundred connections that call again and again at once", function()
  it("cause hardly a page fault once they have called", function()
    if os.getenv "TSAN_OPTIONS" or os.getenv "ASAN_OPTIONS" then return pending "sanitizers have memory of their own" end
    local g <close> = gateway.start {
      workers = 1, config = { overload = { wait = "off" } }, scripts = { ["tools/work.lua"] = 'return tool { "Works.", function() return "done" end }' },
    }
    local caller = { free = offering.connect(g.port, "127.0.0.1", CONNECTIONS), rate = 1, burst = CONNECTIONS }
    local function call_all(times)
      local results = offering.run({ caller }, function(so_far) return so_far.served + CONNECTIONS end, CONNECTIONS, times * CONNECTIONS)
      assert.equal(0, #results[1].refusals)
    end
    call_all(3)
    local before = faults(g.pid)
    call_all(TURNS)
    local each = (faults(g.pid) - before) / (TURNS * CONNECTIONS)
    assert.is_true(each < MOST, ("%.2f faults a call"):format(each))
    offering.close(caller.free)
  end)
end)
