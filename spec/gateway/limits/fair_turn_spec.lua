-- Handlers that compute for long take turns with all other work of the worker.
local gateway = require "spec.helpers.gateway"

local busy = {
  ["tools/quick.lua"] = "return tool { 'Answers at once.', function() return 'quick' end }",
  ["tools/busy.lua"] = [[
local started = 0
return tool { "Computes for a while.", function()
  started = started + 1
  log.info("started", { n = started })
  local from = os.clock()
  while os.clock() - from < 0.03 do end
end }]],
}

describe("forty handlers that compute for 30 ms each, on one worker", function()
  it("let the worker answer other calls in between", function()
    local g <close> = gateway.start { scripts = busy, workers = 1 }
    local c <close> = g:client "2026-07-28"
    local streams = {}
    for i = 1, 40 do streams[i] = c:open("tools/call", { name = "busy" }) end
    g:wait_log("started", { n = 3 })
    assert.equal("quick", c:call("tools/call", { name = "quick" }).result.content[1].text)
    assert(g:status().gauges.requests_in_flight > 10, "the quick call had to wait for all of them")
    for _, stream in ipairs(streams) do assert(stream:answer(20).result) end
    c:close()
    assert.has_nothing_left(g)
  end)
end)
