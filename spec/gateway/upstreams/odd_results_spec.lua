-- A result of a kind that this gateway does not know: the client gets an error that says so, and nothing of it.
local upstream = require "spec.helpers.upstream"

describe("a result of an unknown kind", function()
  it("is an error that says so, for clients of each revision", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:when("tools/call echo", function(x) x:result '{"resultType":"surprise","content":[{"type":"text","text":"hidden"}]}' end)
    local g <close> = upstream.gateway { one = u }
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local c <close> = g:client(revision, { capabilities = { elicitation = {} } })
      local _, message = upstream.failure(c:call("tools/call", { name = "one_echo", arguments = {} }), "unknown", "result_type")
      assert.matches("a result of a kind that this gateway does not know", message, 1, true)
    end
  end)
end)
