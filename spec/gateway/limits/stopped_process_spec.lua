-- limits.call.cpu counts what a call ran, not what passed while its process was stopped or waited for a processor.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local STOPS, STOPPED_MS, CALLERS = 30, 150, 4

-- Runs the loop of the spec for `ms`: no event says how long a stopped process has been stopped.
local function pass(ms)
  local timer, over = uv.new_timer(), false
  timer:start(ms, 0, function() over = true end)
  while not over do uv.run "once" end
  timer:close()
end

describe("limits.call.cpu", function()
  it("is not used up by the time for which the process is stopped", function()
    local g <close> = gateway.start {
      workers = 1, config = { limits = { call = { cpu = "100ms", time = "60s" } } },
      scripts = { ["tools/work.lua"] = [[
return tool { "Work for a short time.", function()
  local n = 0
  for i = 1, 20000 do n = n + i % 7 end
  return "done"
end }]] },
    }
    local callers, answered = {}, 0
    for i = 1, CALLERS do
      local c = g:client "2026-07-28"
      callers[i] = { client = c, stream = c:open("tools/call", { name = "work" }) }
    end
    local function look()
      for _, caller in ipairs(callers) do
        if caller.stream:has_begun() then
          local answer = caller.stream:answer(10)
          assert.same("done", answer.result and answer.result.content[1].text or answer)
          answered = answered + 1
          caller.stream:close()
          caller.stream = caller.client:open("tools/call", { name = "work" })
        end
      end
    end
    for _ = 1, STOPS do
      local before = answered
      while answered < before + 2 * CALLERS do
        uv.run "once"
        look()
      end
      g:signal "sigstop"
      pass(STOPPED_MS)
      g:signal "sigcont"
    end
    for _, caller in ipairs(callers) do
      assert.equal("done", caller.stream:answer(20).result.content[1].text)
      caller.stream:close()
      caller.client:close()
    end
    assert.equal(0, g:status().counters.tool_aborted.cpu)
  end)
end)
