-- Connections of other nodes have a room of their own: clients do not take it, and hops take none of theirs.
local client = require "spec.helpers.client"
local cluster = require "spec.helpers.cluster"
local processes = require "spec.helpers.processes"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"
local MOST <const> = 16

local scripts = { ["tools/stay.lua"] = [[return tool { "Stays.", function(_, call)
  call:progress(1)
  sleep(60)
end }]] }

local function closing(list)
  return setmetatable(list, { __close = function() for _, one in ipairs(list) do one:close() end end })
end

describe("connections of other nodes", function()
  it("take no room of clients", function()
    local c <close>, one = cluster.start { nodes = 1, scripts = scripts, workers = 1,
      config = { limits = { connections = MOST, drain = "100ms" } } }
    local two = c:add { config = {} }
    local me <close> = move(one:client(STATEFUL), two)
    for _ = 1, 2 * MOST do me:open("tools/call", { name = "stay", _meta = { progressToken = "p" } }):wait "notifications/progress" end
    local gauges = one:status().gauges
    assert.equal(2 * MOST, gauges.hop_connections)
    assert.is_true(gauges.connections < MOST, gauges.connections)
    assert.equal(0, one:status().counters.refused.connections)
    local you <close> = one:client(STATEFUL)
    assert.equal("n1", text(you, "place"))
  end)

  it("are not ended for clients, who have all of theirs", function()
    local c <close>, one, two = cluster.start { workers = 1, config = { limits = { connections = MOST } } }
    local me <close> = one:client(STATEFUL)
    assert.equal("n1", text(move(me, two), "place"))
    assert.equal(1, one:status().gauges.hop_connections) -- kept for the next request
    local held <close> = closing {}
    for i = 1, MOST do
      held[i] = client.connect(one)
      held[i]:send_raw "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"
    end
    one:wait_status(function(status) return status.gauges.connections >= MOST end)
    local more <close> = client.connect(one)
    one:wait_status(function(status) return status.counters.refused.connections > 0 end)
    assert.equal(1, one:status().gauges.hop_connections)
    local _ <close> = more
    for _ = 1, 3 do assert.equal("n1", text(me, "place")) end
    assert.equal(1, one:status().gauges.hop_connections)
    c:is_quiet()
  end)
end)
