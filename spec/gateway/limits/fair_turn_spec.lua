-- Handlers that compute for long take turns with all other work of the worker.
local gateway = require "spec.helpers.gateway"

local COUNT <const>, TRIES <const> = 40, 5

local tools = [[
local begun, ended = 0, 0
return {
  quick = tool { "Says how many of the others have ended.", function() return tostring(ended) end },
  busy = tool { "Computes for a while.", function()
    begun = begun + 1
    log.info("started", { n = begun })
    for _ = 1, 4000000 do end -- and not until a time: all of them would be over at that
    ended = ended + 1
  end },
}]]

describe("forty handlers that compute for some 30 ms each, on one worker", function()
  it("let the worker answer other calls in between", function()
    local g <close> = gateway.start { scripts = { ["tools/all.lua"] = tools }, workers = 1 }
    local c <close> = g:client "2026-07-28"
    local before, found = 0, nil
    -- On a busy machine this process may not run while all of them do: it tries again. Without turns no try would succeed.
    for _ = 1, TRIES do
      local streams = {}
      for i = 1, COUNT do streams[i] = c:open("tools/call", { name = "all_busy" }) end
      g:wait_log("started", { n = before + 3 })
      found = tonumber(c:call("tools/call", { name = "all_quick" }).result.content[1].text) - before
      for _, stream in ipairs(streams) do assert(stream:answer(20).result) end
      before = before + COUNT
      if found < COUNT - 10 then break end
    end
    assert.is_true(found < COUNT - 10, found .. " had ended when another call was answered")
    c:close()
    assert.has_nothing_left(g)
  end)
end)
