-- The hook that ends a time slice may be lost: a signal sets it at the moment at which the interrupted code takes
-- another one away. The next ones set it again, so that the script still ends.
local gateway = require "spec.helpers.gateway"

describe("a script without an end, when hooks are lost", function()
  it("is suspended and ended all the same, and others are answered meanwhile", function()
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer's build loses no hooks" end
    local g <close> = gateway.start {
      workers = 1, config = { limits = { call = { cpu = "300ms" } } },
      scripts = {
        ["tools/ok.lua"] = "return tool { 'T.', function() return 'ok' end }",
        ["tools/spin.lua"] = "return tool { 'T.', function() while true do end end }",
      },
      env = { LOST_HOOKS = "1" },
    }
    local c <close> = g:client "2026-07-28"
    for _ = 1, 3 do
      local spins = c:open("tools/call", { name = "spin" })
      assert.equal("ok", c:call("tools/call", { name = "ok" }).result.content[1].text)
      assert.matches("^the call ran Lua for longer", spins:answer(20).error.message)
    end
    c:close()
    assert.has_nothing_left(g)
  end)
end)
