-- Sessions that a gateway keeps over its restart (store.file) go on at that gateway alone: by way of another node they are
-- not reached at first, and unknown as soon as it is known that the process which their ids name is gone.
local cluster = require "spec.helpers.cluster"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local it = cluster.it(it, pending)
local BOUND <const> = 20 * wait.slower -- seconds

local function ping(g, session) return wire.post(g, '{"jsonrpc":"2.0","id":1,"method":"ping"}', { ["Mcp-Session-Id"] = session }).status end

describe("sessions that a restart has kept", function()
  it("go on at their own node, and are 503, then 404 by way of another one", function()
    local c <close>, one, two = cluster.start { config = { store = { file = "store.db" } }, constants = { node_turn_ms = 200, node_stale_ms = 2000 } }
    local session = wire.initialize(one, "2025-11-25")
    assert.same({ 200, 200 }, { ping(one, session), ping(two, session) })
    one:kill()
    assert.equal(503, ping(two, session))
    table.remove(c.all, 1)
    local again <close> = gateway.start { dir = one.dir }
    local last
    wait.for_fact("the session to be unknown", BOUND, function()
      assert.equal(200, ping(again, session))
      last = ping(two, session)
      assert.is_true(last == 503 or last == 404, last)
      return last == 404
    end)
    assert.same({ 200, 404 }, { ping(again, session), ping(two, session) })
    local new = wire.initialize(two, "2025-11-25")                 -- what the client does then
    assert.same({ 200, 200 }, { ping(again, new), ping(two, new) })
    assert.equal(204, wire.request(again, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session }).status)
    again:stop()
  end)
end)
