-- Results of upstreams that are larger than limits.stream_queue and limits.call.output: all up to limits.upstreams.answer
-- reach the client, over each transport and with notifications before them; of a larger one the error says the limit.
local upstream = require "spec.helpers.upstream"

local KINDS <const> = { { "2025-11-25", "http" }, { "2026-07-28", "http" }, { "2025-06-18", "stdio" }, { "2024-11-05", "sse" } }

describe("a result of an upstream", function()
  for _, kind in ipairs(KINDS) do
    it("of " .. kind[1] .. " over " .. kind[2] .. " reaches the client up to limits.upstreams.answer", function()
      local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
      u.handlers.big = function(x, reply)
        x:report(1, 2)
        reply(x:complete(('{"content":[{"type":"text","text":"%s"}]}'):format(("x"):rep(x.arguments.bytes // 1 | 0))))
      end
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u }, workers = 2 })
      for i, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
        local c <close> = g:client(revision)
        for _, mib in ipairs { 2, i == 2 and 9 or 15 } do
          local meta = (mib == 2) == (i == 2) and { progressToken = "p" } or nil
          local answer = c:call("tools/call", { name = "big", arguments = { bytes = mib << 20 }, _meta = meta }, 60)
          assert.equal(mib << 20, #upstream.text(answer))
        end
      end
      local c <close> = g:client "2025-11-25"
      local _, message = upstream.failure(c:call("tools/call", { name = "big", arguments = { bytes = 17 << 20 } }, 60), "unknown", "too_large")
      assert.truthy(message:find("over limits.upstreams.answer (16777216 bytes)", 1, true), message)
    end)
  end
end)
