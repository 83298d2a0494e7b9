-- What a node does with records: of a number that no read has shown, and of a process that does not renew its own.
local cluster = require "spec.helpers.cluster"
local nodes = require "spec.helpers.nodes"
local processes = require "spec.helpers.processes"
local proxy = require "spec.helpers.proxy"
local upgrading = require "spec.helpers.upgrading"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"
local gateway = require "spec.helpers.gateway"
require "spec.helpers.asserts"

local it = cluster.it(it, pending)
local move, text = processes.move, processes.text
local STATEFUL <const> = "2025-11-25"

local PING <const> = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
local SELDOM <const> = { node_turn_ms = 600000 } -- records are read once

local function ping(g, session) return wire.post(g, PING, { ["Mcp-Session-Id"] = session }) end

-- How often the server was asked by these commands since CONFIG RESETSTAT.
local function calls(server, command)
  return tonumber(server:cli("INFO", "commandstats"):match("cmdstat_" .. command .. ":calls=(%d+)")) or 0
end

describe("a number that no read has shown", function()
  it("is asked for alone, and none is remembered", function()
    local c <close>, one = cluster.start { nodes = 1, constants = SELDOM, workers = 2 }
    local keys = cluster.keys()
    nodes.joined(one)
    c.server:cli("CONFIG", "RESETSTAT")
    local ids = {}
    for i = 1, 5 do ids[i] = keys:id():sub(1, 32) .. ("%04x"):format(math.random(0, 65535)) end
    for _, id in ipairs(ids) do
      for _ = 1, 4 do assert.equal(404, ping(one, id).status) end
    end
    local asked = calls(c.server, "hget")
    assert.is_true(asked >= 5 and asked <= 10, asked) -- an answer counts for 2 s
    assert.is_true(calls(c.server, "hgetall") < 3) -- the switches are read, too
  end)

  it("may be that of a node that has just joined, also for a node that was upgraded", function()
    local c <close>, one = cluster.start { nodes = 1, constants = SELDOM, start = upgrading.start_quick }
    local kept <close> = client.connect(one)
    assert.equal(404, kept:request({ path = "/nowhere" }).status)
    one:must_upgrade()
    local two = c:add { start = gateway.start }
    local me <close> = two:client(STATEFUL)
    local old = kept:request { method = "POST", path = "/mcp", body = PING,
      headers = { Accept = wire.both, ["Content-Type"] = "application/json", ["Mcp-Session-Id"] = me.session } }
    assert.equal(200, old.status, old.body) -- by the older process
    for _ = 1, 3 do assert.equal(200, ping(one, me.session).status) end
    assert.equal("n2", text(move(me, one), "place"))
    local id = cluster.keys():id()
    assert.equal(404, ping(one, id).status)
    c:is_quiet()
  end)
end)

describe("a record that is not renewed", function()
  local QUICK <const> = { node_turn_ms = 200, node_stale_ms = 900, node_over_ms = 1500, redis_idle_ms = 2000 }

  it("stays while its process answers the others, whose clients keep their sessions", function()
    local c <close>, one = cluster.start { nodes = 1, constants = QUICK, workers = 1 }
    local between <close> = proxy.start(c.server.port)
    local two = c:add { redis_at = "127.0.0.1:" .. between.port, timeout = "100ms" }
    local me <close> = two:client(STATEFUL)
    assert.equal("n2", text(move(me, one), "place"))
    between.swallows = true
    nodes.wait(one, nodes.are { n1 = "serving", n2 = "stale" })
    local function forget()
      return gateway.exec { "cluster", "--admin", "127.0.0.1:" .. one.admin_port, "forget", "n2" }
    end
    local code, _, err = forget()
    assert.equal(1, code)
    assert.truthy(err:find("it answers: it lives", 1, true), err)
    local reads = nodes.records(c.server)[one.number].renewals
    wait.for_fact("some turns after the record is over", 20, function()
      local age
      for _, node in ipairs(nodes.known(one).nodes) do
        if node.node == "n2" then age = node.age_ms end
      end
      assert.is_truthy(age, "the record was removed")
      return age > 2500 and nodes.records(c.server)[one.number].renewals > reads + 5
    end)
    assert.equal(two.uid, nodes.records(c.server)[two.number].uid)
    for _ = 1, 3 do assert.equal("n2", text(me, "place")) end
    between.swallows = false
    between:cut()
    nodes.wait(one, nodes.are { n1 = "serving", n2 = "serving" })
    assert.is_nil(two:log():find("cluster number lost", 1, true))
    between.swallows = true
    nodes.wait(one, nodes.are { n1 = "serving", n2 = "stale" })
    two:kill()
    two.stopped = true
    nodes.wait(one, nodes.are { n1 = "serving" })
    assert.is_nil(nodes.records(c.server)[two.number])
    assert.equal(404, ping(one, me.session).status)
    me.kept = nil
  end)

  it("goes where another process has its address", function()
    local c <close>, one = cluster.start { nodes = 1, constants = QUICK, workers = 1 }
    nodes.put(c.server, 77, { uid = ("0"):rep(31) .. "1", node = "ghost", address = one.node_address, renewals = 1, format = 1, version = "0.1.0",
      sessions = 0, state = "serving", scripts = ("0"):rep(16) })
    local two = c:add()
    nodes.wait(two, nodes.are { n1 = "serving", n2 = "serving" })
    assert.is_nil(nodes.records(c.server)[77])
    assert.equal(204, client.request(tonumber(one.node_address:match ":(%d+)$"), { path = "/-/alive" }).status)
    for query, status in pairs {
      [("number=%d&uid=%s"):format(one.number, one.uid)] = 204, [("number=%d&uid=%s"):format(one.number, two.uid)] = 421,
      [("number=77&uid=%s"):format(one.uid)] = 421, ["number=77"] = 421, ["number=x&uid=y"] = 421,
    } do
      assert.equal(status, client.request(tonumber(one.node_address:match ":(%d+)$"), { path = "/-/alive?" .. query }).status, query)
    end
  end)
end)
