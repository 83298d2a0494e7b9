-- An error that says not of which request it is: its id is null, or missing. Where one request is under way it is the
-- answer, and its words reach the client; where there are several, it is dropped and counted.
local faults = require "spec.helpers.upstream.faults"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local ERRORS <const> = {
  ["with an id of null"] = '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"I cannot read this"}}',
  ["without an id"] = '{"jsonrpc":"2.0","error":{"code":-32700,"message":"I cannot read this"}}',
}

describe("an error", function()
  for _, transport in ipairs { "http", "sse", "stdio" } do
    for what, bytes in pairs(ERRORS) do
      it(what .. " of an upstream over " .. transport .. " is the answer to its one request", function()
        local u <close> = upstream.start { transport = transport, revision = transport == "sse" and "2024-11-05" or "2025-06-18" }
        local g <close> = upstream.gateway { one = u }
        local c <close> = g:client "2026-07-28"
        assert.equal('{"n":1}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 1 } })))
        u:when("tools/call echo", faults.answers(bytes), 1)
        local answer = c:call("tools/call", { name = "one_echo", arguments = { n = 2 } }, 10)
        assert.matches("I cannot read this", answer.error and answer.error.message or upstream.text(answer), 1, true)
        assert.equal('{"n":3}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 3 } })))
      end)
    end
  end

  it("without an id is nobody's where several requests are under way", function()
    local u <close> = upstream.start { transport = "stdio", revision = "2025-06-18" }
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client "2026-07-28"
    u:when("tools/call echo", faults.late(60000), 1)
    local held = c:open("tools/call", { name = "one_echo", arguments = { n = 1 } })
    wait.for_fact("the first call", 20, function() return u:ran "echo" == 1 end)
    local before = g:status().counters.dropped.upstream_id
    u:when("tools/call echo", function(x)
      x:emit(ERRORS["without an id"])
      x:serve()
    end, 1)
    assert.equal('{"n":2}', upstream.text(c:call("tools/call", { name = "one_echo", arguments = { n = 2 } })))
    g:wait_status(function(status) return status.counters.dropped.upstream_id == before + 1 end)
    held:close()
  end)
end)
