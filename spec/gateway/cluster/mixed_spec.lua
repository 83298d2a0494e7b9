-- Nodes that differ, as in the middle of a deploy: in their endpoints, their time zone, and their scripts.
local cluster = require "spec.helpers.cluster"
local gateway = require "spec.helpers.gateway"
local processes = require "spec.helpers.processes"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"

local scripts = {
  ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
    return try(call:elicit("sure", "Sure?", { name = t.string })).name
  end }]],
  ["tools/stay.lua"] = [[return tool { "Stays.", function(_, call)
    call:progress(1, 2)
    sleep(60)
  end }]],
  ["tools/slow.lua"] = 'return tool { "Slow.", task = "optional", function() sleep(60) end }',
}

-- A client of `g`, whose requests go to `other`, at the path that it serves there.
local function at(c, g, path)
  c.path = path
  return move(c, g)
end

describe("nodes with other endpoints, another time zone and other scripts", function()
  it("serve each other's sessions and tasks", function()
    local c <close>, one = cluster.start { nodes = 1, scripts = scripts, tls = true }
    local two = c:add { scripts = { ["tools/new.lua"] = 'return tool { "New.", function() return "new" end }' },
      config = { endpoints = { mcp = "/other" } }, start = function(options)
        options.env = { TZ = "Asia/Tokyo" }
        return gateway.start(options)
      end }
    local me <close> = one:client(STATEFUL, { capabilities = { elicitation = {} } })
    assert.equal("n1", text(at(me, two, "/other"), "place"))
    local stream = at(me, two, "/other"):open("tools/call", { name = "ask" })
    local question = stream:wait_event("elicitation/create").json
    local answer = { jsonrpc = "2.0", id = question.id, result = { action = "accept", content = { name = "Ann" } } }
    assert.equal(202, at(me, one, "/mcp"):post(answer).status)
    assert.equal("Ann", stream:answer().result.content[1].text)
    local stays = at(me, two, "/other"):open("tools/call", { name = "stay", _meta = { progressToken = "p" } })
    stays:wait "notifications/progress"
    assert.equal(202, at(me, two, "/other"):notify("notifications/cancelled", { requestId = stays.id }).status)
    one:wait_status(function(status) return status.gauges.requests_in_flight == 0 end, 20 * wait.slower)
    local id = at(me, one, "/mcp"):result("tools/call", { name = "slow", arguments = {}, task = { ttl = 60000 } }).task.taskId
    assert.equal("working", at(me, two, "/other"):result("tasks/get", { taskId = id }).status)
    assert.equal("cancelled", me:result("tasks/cancel", { taskId = id }).status)
    assert.equal(204, me:delete().status)
    assert.equal(404, at(me, one, "/mcp"):post(me:message "ping").status)
    local modern <close> = one:client("2026-07-28", { capabilities = task_client.CAN })
    assert.equal("n1", text(modern, "place"))
    c:is_quiet()
  end)
end)
