-- Kept connections between nodes: which of both sides closes them, and when.
local cluster = require "spec.helpers.cluster"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local STATEFUL <const> = "2025-11-25"

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'

local function ping(g, session) return wire.post(g, PING, { ["Mcp-Session-Id"] = session }).status end

describe("a kept connection between nodes", function()
  it("is never closed first by the owner: no request on it is lost, however long the time between two", function()
    local c <close>, one, two = cluster.start { tls = true, workers = 1, config = { limits = { request_time = "2s" } } }
    local me <close> = one:client(STATEFUL)
    for _, pause in ipairs { 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1 } do -- the edge keeps it for half of that time
      assert.equal(200, ping(two, me.session), pause)
      wait.quietly(pause)
    end
    c:is_quiet()
    assert.equal(0, cluster.forwards(two, one, "lost"))
  end)

  it("of a node that ends loses no request, either", function()
    local c <close>, one, two = cluster.start { workers = 1 }
    local me = one:client(STATEFUL)
    assert.equal(200, ping(two, me.session))
    one:signal "sigterm"
    local seen, last = {}, nil
    wait.for_fact("the node to end", 20, function()
      last = ping(two, me.session)
      seen[last] = (seen[last] or 0) + 1
      return not one:is_alive()
    end)
    assert.is_nil(seen[502])
    assert.is_true(last == 503 or last == 404, last)
    me.kept = nil
    c:kill(one)
  end)
end)
