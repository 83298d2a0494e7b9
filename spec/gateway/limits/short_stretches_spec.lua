-- limits.call.cpu is the processor time of all Lua of a call: also of a call that waits again and again, each time after
-- a moment that is too short for the timer to interrupt it.
local gateway = require "spec.helpers.gateway"

-- Loops without an end whose every turn waits for something, by what they wait for.
local LOOPS <const> = {
  sleep = "sleep(0)",
  caught = "pcall(sleep, 0)",
  nested = "coroutine.wrap(function() sleep(0) end)()",
  parallel = "parallel { function() sleep(0) end, function() end }",
  read = "fs.read 'data/a'",
  work = "json.decode(json.encode { 1, 2, 3 }) call:progress(1) sleep(0)",
  several = "parallel { function() for _ = 1, 50 do sleep(0) end end, function() for _ = 1, 50 do sleep(0) end end }",
  closed = "local _ <close> = setmetatable({}, { __close = function() end }) sleep(0)",
}

describe("a loop that waits in each turn, for next to nothing", function()
  local g

  lazy_setup(function()
    local scripts = { ["tools/ok.lua"] = 'return tool { "Ok.", function() return "ok" end }' }
    for name, body in pairs(LOOPS) do
      scripts["tools/" .. name .. ".lua"] = ('return tool { "Loops.", function(_, call) while true do %s end end }'):format(body)
    end
    g = gateway.start {
      scripts = scripts, workers = 1, files = { ["data/a"] = "text" },
      config = { limits = { call = { cpu = "100ms", time = "60s" } }, scripts = { allow = { read = { "data" } } } },
    }
  end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  for name in pairs(LOOPS) do
    it(("(%s) is ended by limits.call.cpu"):format(name), function()
      local c <close> = g:client "2026-07-28"
      local before = g:status().counters.tool_aborted.cpu
      local answer = c:open("tools/call", { name = name }):answer(20)
      assert.equal("the call ran Lua for longer than limits.call.cpu", (answer.error or {}).message or answer.result.content[1].text)
      assert.equal(before + 1, g:status().counters.tool_aborted.cpu)
      g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.requests_in_flight == 0 end)
      assert.equal("ok", c:call("tools/call", { name = "ok" }).result.content[1].text)
    end)
  end
end)
