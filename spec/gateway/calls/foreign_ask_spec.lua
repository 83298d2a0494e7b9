-- A handler asks through the `call` of another one that still runs: the request travels on the stream of that other
-- call, and outlives the task that waits for its answer.
local gateway = require "spec.helpers.gateway"

-- One worker, and two scripts that share a library.
local scripts = {
  ["lib/shared.lua"] = "return {}",
  ["tools/owner.lua"] = [[
local shared = require "shared"
return tool { "Owner.", function(_, call)
  shared.call = call
  call:progress(1)
  while not shared.is_over do sleep(0.005) end
  return "done"
end }]],
  ["tools/stranger.lua"] = [[
local shared = require "shared"
return tool { "Stranger.", function(_, call)
  call:progress(1)
  return shared.call:elicit("sure", "Sure?", { ok = t.boolean }) and "yes" or "no"
end }]],
  ["tools/leave.lua"] = [[
local shared = require "shared"
return tool { "Leave.", function()
  shared.is_over = true
  return "left"
end }]],
}

local able = { elicitation = { form = { [" "] = 1 } } }

describe("a question on the stream of another call", function()
  it("is taken back when the task that waits for it is cancelled, and a late answer is ignored", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local c <close> = g:client("2025-11-25", { capabilities = able })
    local owner = c:open("tools/call", { name = "owner", _meta = { progressToken = 1 } })
    owner:wait_event "notifications/progress"
    local stranger = c:open("tools/call", { name = "stranger", _meta = { progressToken = 2 } })
    local id = owner:wait_event "elicitation/create".json.id
    c:post { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = stranger.id } }
    assert.equal(id, owner:wait_event "notifications/cancelled".json.params.requestId)
    g:wait_status(function(status) return status.gauges.tasks == 1 end)
    c:post { jsonrpc = "2.0", id = id, result = { action = "accept", content = { ok = true } } }
    assert.equal("left", c:result("tools/call", { name = "leave" }).content[1].text)
    assert.equal("done", owner:answer().result.content[1].text)
    c:delete()
    c:close()
    assert.has_nothing_left(g)
  end)
end)
