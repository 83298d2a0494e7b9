-- Lists that change during calls, whose subscribers list again at once and disconnect in the middle: no task waits for
-- another (B-82).
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local SLACK <const> = (os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS") and 10 or 1
local FLIPS <const>, LISTENERS <const> = 60, 12

local scripts = {
  ["tools/extra.lua"] = 'return tool { "Extra.", enabled = false, function() return "here" end }',
  -- switches another tool, and itself, while it runs; its notifications are on their way when it asks for the next list
  ["tools/flip.lua"] = [[return tool { "Flips.", function()
    for _ = 1, 5 do
      enable("tool", "extra")
      disable("tool", "flip")
      sleep(0)
      parallel { function() enable("tool", "flip") end, function() disable("tool", "extra") end, function() resource_updated "x:y" end }
    end
    enable("tool", "extra")
    return "flipped"
  end }]],
  ["tools/ok.lua"] = 'return tool { "Ok.", function() return "ok" end }',
  ["resources/x.lua"] = 'return resource { "X.", uri = "x:y", "text" }',
}

describe("B-82 a tool that changes the tool list from inside a call", function()
  it("delays no client, while subscribers list tools at every notification and disconnect", function()
    local g <close> = gateway.start { scripts = scripts }
    local flipper, bystander, asker = g:client "2026-07-28", g:client "2026-07-28", g:client "2026-07-28"
    local listeners, listed, waited = {}, 0, {}
    local function listen(i)
      local me = g:client(i % 2 == 0 and "2026-07-28" or "2025-11-25")
      local stream = i % 2 == 0 and me:open("subscriptions/listen", { notifications = { toolsListChanged = true } }) or me:get_stream()
      listeners[i] = { me = me, stream = stream, seen = 0 }
    end
    local function leave(one)
      if one.me.session then one.me:delete() end
      one.me:close()
    end
    for i = 1, LISTENERS do listen(i) end
    for flip = 1, FLIPS do
      local stream = flipper:open("tools/call", { name = "flip" })
      waited[flip] = wait.timed(function() assert.equal("ok", bystander:result("tools/call", { name = "ok" }).content[1].text) end)
      for i, one in ipairs(listeners) do
        local count = #one.stream:messages()
        if count > one.seen then
          one.seen, listed = count, listed + 1
          assert.is_true(#asker:result("tools/list").tools >= 1)
        end
        if (flip + i) % 10 == 0 then
          leave(one)
          listen(i)
        end
      end
      local answer = stream:answer() -- a call that began while the tool was disabled gets "unknown tool"
      assert.is_true(answer.result ~= nil or answer.error.code == -32602)
      stream:close()
    end
    assert.is_true(listed > FLIPS, "few heard of it: " .. listed)
    table.sort(waited) -- the longest waits may be the machine's
    local long = waited[FLIPS * 9 // 10]
    assert.is_true(long < 0.1 * SLACK, ("one in ten calls waited for %g s"):format(long))
    for _, one in ipairs(listeners) do leave(one) end
    for _, me in ipairs { flipper, bystander, asker } do me:close() end
    assert.has_nothing_left(g)
  end)
end)
