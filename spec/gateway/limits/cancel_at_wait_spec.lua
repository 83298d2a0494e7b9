-- A task that is cancelled right before the instruction that calls a waiting function of C ends there, once.
local code = require "spec.helpers.code"

describe("a task that computes and is cancelled where its next instruction waits", function()
  local g, me
  lazy_setup(function()
    g = code.start { workers = 1 }
    me = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    me:close()
    assert.has_nothing_left(g)
    g:stop()
  end)

  -- The first task does nothing but compare, so it is preempted between two comparisons. Each comparison calls a C
  -- function: first `type`, and `sleep` once the second task has failed, which cancels the first.
  local text = ([[
    local comparison, closed = { __lt = type }, 0
    for _ = 1, 20 do
      local began = false
      pcall(parallel, {
        function()
          local gate <close> = closing(function() closed = closed + 1 end)
          local number, limit = 0.001, setmetatable({}, comparison)
          comparison.__lt, began = type, true
          while CHAIN do end
        end,
        function()
          while not began do sleep(0.001) end
          sleep(0.003)
          comparison.__lt = sleep
          error "the other one is cancelled"
        end,
      })
    end
    return closed]]):gsub("CHAIN", ("number < limit and "):rep(100) .. "true")

  it("raises the error of a cancelled call instead of waiting, and leaves nothing behind", function()
    assert.equal(20, code.run(me, text))
    local status = g:wait_status(function(now) return now.gauges.tasks == 0 and now.gauges.ops == 0 end)
    assert.equal(0, status.counters.tool_faults)
  end)
end)
