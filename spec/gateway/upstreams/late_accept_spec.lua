-- A server over HTTP+SSE may accept a request only when it answers it, as those on java-sdk do. What belongs to the call
-- reaches it meanwhile: answers to its questions, and cancellations.
-- pairs: elicitation and cancellation; clients 2025-11-25; upstreams 2024-11-05 sse
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"

local FORM <const> = { "elicitation/create", { message = "Name?", requestedSchema = { type = "object", properties = { name = { type = "string" } } } } }

describe("a server that accepts a request only when it answers it", function()
  it("gets the answers to its questions", function()
    local u <close> = upstream.start { transport = "sse", accepts_late = true }
    u:offer("tools", { "ask" })
    local g <close> = upstream.gateway { one = u }
    local c <close> = g:client("2025-11-25", { capabilities = { elicitation = { form = {} } } })
    local stream = c:open("tools/call", { name = "one_ask", arguments = { questions = { FORM, FORM, { "ping", {} } } } })
    for _ = 1, 2 do
      local form = stream:wait_event("elicitation/create").json
      c:post { jsonrpc = "2.0", id = form.id, result = { action = "accept", content = { name = "Ann" } } }
    end
    local got = cjson.decode(upstream.text(stream:answer(10)))
    for i = 1, 2 do assert.same({ action = "accept", content = { name = "Ann" } }, got[i]) end
    assert.same({}, got[3])
  end)

  it("learns that a call is cancelled", function()
    local u <close> = upstream.start { transport = "sse", accepts_late = true }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    local stream = c:open("tools/call", { name = "hold", arguments = { key = "one" } })
    local held = u:wait_held(1)
    c:notify("notifications/cancelled", { requestId = stream.id })
    assert.is_truthy(u:wait { method = "notifications/cancelled" })
    assert.is_truthy(held)
  end)
end)
