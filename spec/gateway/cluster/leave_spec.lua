-- A node that is asked to end leaves first: /readyz is 503, it takes no clients, and its sessions are answered by way of the
-- others until they end, or cluster.leave is over. A rolling restart costs no request. Times are shorter.
local client = require "spec.helpers.client"
local cluster = require "spec.helpers.cluster"
local gateway = require "spec.helpers.gateway"
local nodes = require "spec.helpers.nodes"
local rolling = require "spec.soak.rolling"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local it = cluster.it(it, pending)
local MODERN <const>, STATEFUL <const> = "2026-07-28", "2025-11-25"
local BOUND <const> = 20 * wait.slower -- seconds

local function start(options)
  options.constants = rolling.QUICK
  return cluster.start(options)
end

local function leaves(g, to)
  g:signal "sigterm"
  nodes.wait(to, function(known)
    for _, one in ipairs(known.nodes) do
      if one.node == g.node then return one.state == "leaving" end
    end
  end)
end

local function has_ended(g) return g.process.code ~= nil end

local function wait_for_end(g) wait.for_fact("the node to end", BOUND, function() return has_ended(g) end) end

-- Waits until a node takes no connections.
local function closed(g)
  wait.for_fact("the node to take no connections", BOUND, function() return not pcall(client.request, g, { method = "GET", path = "/mcp" }) end)
end

-- Clients here have a connection for each request: a node waits for those that are kept.
local function call(g, session)
  local answer = wire.post(g, wire.message(1, "tools/call", { name = "place", arguments = {} }), { ["Mcp-Session-Id"] = session })
  return (answer.body:match '"text":"(n%d)"')
end

local function delete(g, session) return wire.request(g, "DELETE", "/mcp", { ["Mcp-Session-Id"] = session }).status end

local function ping(g, session) return wire.post(g, '{"jsonrpc":"2.0","id":1,"method":"ping"}', { ["Mcp-Session-Id"] = session }).status end

describe("a node that leaves", function()
  it("answers its sessions by way of others until they end, then ends", function()
    local c <close>, one, two = start { leave = "30s", tls = true }
    local session, kept = wire.initialize(one, STATEFUL), one:connect()
    leaves(one, two)
    closed(one)
    assert.equal(503, one:admin "/readyz".status)
    assert.equal("leaving\n", one:admin "/readyz".body)
    assert.equal(200, one:admin "/healthz".status)
    for _ = 1, 3 do assert.equal("n1", call(two, session)) end
    kept:close()
    assert.equal(204, delete(two, session))
    wait_for_end(one)
    assert.matches("nothing is left to serve", one:log(), 1, true)
    assert.equal(404, ping(two, session))
    c:kill(one)
  end)

  it("ends when its time is over: sessions that are left are unknown, and nothing else", function()
    local c <close>, one, two = start { leave = "1s" }
    local session = wire.initialize(one, STATEFUL)
    leaves(one, two)
    local last
    wait.for_fact("the session to be unknown", BOUND, function()
      last = ping(two, session)
      if last ~= 200 then assert.equal(404, last) end
      return last == 404
    end)
    wait.for_fact("the node to end", BOUND, function()
      assert.equal(404, ping(two, session))
      return has_ended(one)
    end)
    assert.equal(404, ping(two, session))
    assert.matches("the time of cluster.leave is over", one:log(), 1, true)
    c:kill(one)
  end)

  it("ends at once where no other node takes clients", function()
    local c <close>, one, two = start { leave = "300s" }
    wire.initialize(one, STATEFUL)
    c:kill(two)
    nodes.wait(one, nodes.are { n1 = "serving", n2 = "stale" })
    one:signal "sigterm"
    wait_for_end(one)
    assert.matches("no other node takes clients", one:log(), 1, true)
    c:kill(one)
  end)

  it("may be asked by way of another one", function()
    local c <close>, one, two = start { leave = "30s" }
    nodes.wait(one, nodes.are { n1 = "serving", n2 = "serving" })
    local function drain(name) return gateway.exec { "cluster", "--admin", "127.0.0.1:" .. one.admin_port, "drain", name } end
    local status, out, err = drain "n3"
    assert.same({ 1, "" }, { status, out })
    assert.matches("no record of the cluster has this node", err, 1, true)
    status, out, err = drain "n2"
    assert.equal(0, status, err)
    assert.matches("it leaves within 2 s", out, 1, true)
    wait_for_end(two)
    assert.matches("leaving", two:log(), 1, true)
    c:kill(two)
  end)

  it("ends at once at a second signal", function()
    local c <close>, one, two = start { leave = "300s" }
    local session = wire.initialize(one, STATEFUL)
    leaves(one, two)
    closed(one)
    assert.equal("n1", call(two, session))
    one:signal "sigterm"
    wait_for_end(one)
    c:kill(one)
  end)

  it("sends to others what would end with it, while it still takes clients, and ends subscriptions", function()
    local c <close>, one, two = start { leave = "30s", config = { limits = { linger = "1500ms" } } }
    nodes.wait(one, nodes.are { n1 = "serving", n2 = "serving" })
    local function listen()
      local me = one:client(MODERN)
      local stream = me:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
      stream:wait "notifications/subscriptions/acknowledged"
      return me, stream
    end
    local early, stream = listen()
    leaves(one, two)
    local session, old = wire.initialize(one, STATEFUL), one:client "2024-11-05"
    local later, late = listen()
    assert.equal("n2", call(one, session))
    assert.equal("n2", old:result("tools/call", { name = "place", arguments = {} }).content[1].text)
    local message = wire.message(1, "tools/call", { name = "place", _meta = wire.meta() })
    assert.matches('"n1"', wire.post(one, message, wire.mirrored(message)).body, 1, true)
    assert.equal(2, one:status().gauges.listeners)
    for _, each in ipairs { stream, late } do assert.equal("complete", each:answer().result.resultType) end
    for _, each in ipairs { early, later, old } do each:close() end
    assert.equal(204, delete(two, session))
    wait_for_end(one)
    c:kill(one)
  end)

  it("ends streams of HTTP+SSE of other nodes' sessions, also those that come on kept connections", function()
    local c <close>, one, two = start { leave = "60s", config = { limits = { linger = "1500ms" } } }
    nodes.wait(one, nodes.are { n1 = "serving", n2 = "serving" })
    local function open(connection)
      connection:send { method = "GET", path = "/sse", headers = { Accept = "text/event-stream" } }
      connection:read_head()
      wait.for_fact("the endpoint", BOUND, function() return connection.events[1] end)
      two:wait_status(function(status) return status.gauges.sessions.sse == 1 end, BOUND)
    end
    local early, late = one:connect(), one:connect()
    late:request { method = "GET", path = "/nothing" }
    leaves(one, two)
    open(early)                                                     -- at n2, within limits.linger
    early:wait_closed(BOUND)
    closed(one)
    two:wait_status(function(status) return status.gauges.sessions.sse == 0 end, BOUND)
    open(late)
    late:wait_closed(BOUND)
    wait_for_end(one)
    assert.matches("nothing is left to serve", one:log(), 1, true)
    c:kill(one)
  end)
end)

describe("a rolling restart of all nodes", function()
  it("costs no request of clients whose sessions are shorter than cluster.leave, and those of HTTP+SSE one initialize each", function()
    local report = rolling.run { rounds = 2 }
    local counts = report.counts
    assert.is_true(counts.modern > 60 and counts.session > 240 and counts.opened > 20 and counts.streams > 100, rolling.describe(report))
    assert.is_true(counts.lost <= counts.restarts, rolling.describe(report))
    for _, times in ipairs(counts.initialized) do assert.is_true(times > 1 and times <= 1 + counts.restarts, rolling.describe(report)) end
  end)
end)
