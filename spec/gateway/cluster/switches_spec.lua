-- What an operator switches off on one node of a cluster is off on all, and stays so over restarts of nodes and of the
-- server.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local cluster = require "spec.helpers.cluster"
local fanned = require "spec.helpers.fanned"
local gateway = require "spec.helpers.gateway"
local nodes = require "spec.helpers.nodes"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

local it_real = redis.it(it, pending)

local TOKEN <const> = ("o"):rep(32)

local function options()
  return { config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = TOKEN } } } } }
end

-- The status, output and errors of the command.
local function switch(g, on, name)
  return gateway.exec({ "switch", "--admin", "127.0.0.1:" .. g.admin_port, on and "on" or "off", "tool", name or "code" },
    { env = { MOONPOOL_ADMIN_TOKEN = TOKEN }, seconds = 30 })
end

local function is_on(c, name)
  for _, tool in ipairs(c:result("tools/list").tools) do
    if tool.name == (name or "code") then return true end
  end
  return false
end

local function wait_on(clients, on, name)
  for i, c in ipairs(clients) do
    wait.for_fact(("the tool to be %s at client %d"):format(on and "on" or "off", i), 20, function() return is_on(c, name) == on end)
  end
end

-- The switches that are off on a node.
local function off(g)
  local response = client.request(g, { path = "/api/switch", headers = { Authorization = "Bearer " .. TOKEN, ["moonpool-admin"] = "1" } }, { admin = true })
  local names = {}
  for i, one in ipairs(response:json().switches) do names[i] = one.name .. " by " .. one.by end
  return table.concat(names, ", ")
end

local function status(g)
  return client.request(g, { path = "/status", headers = { Authorization = "Bearer " .. TOKEN } }, { admin = true }):json()
end

local function wait_connected(g)
  wait.for_fact("a node to be connected", 20, function() return status(g).gauges.redis_connections == 2 end)
end

local function nodes_at(server, count)
  local all = fanned.closing {}
  for i = 1, count do
    all[i] = fanned.node(server.at, options())
    wait_connected(all[i])
  end
  fanned.wait_listeners(server, count)
  return all
end

describe("moonpool switch in a cluster", function()
  it_real("switches on all nodes within a second, and notifies their clients once", function()
    local server <close> = redis.start()
    local three <close> = nodes_at(server, 3)
    local a, b, c = table.unpack(three)
    local all = { fanned.session(a), fanned.session(b), fanned.session(c), fanned.listener(c) }
    for i, g in ipairs { a, b, c, a } do
      local on = i % 2 == 0
      local exit, out, err = switch(g, on)
      assert.same({ 0, ("tool code is %s\n"):format(on and "on" or "off"), "" }, { exit, out, err })
      wait_on(all, on)
      fanned.wait_count(all, "tools", i)
      for _, each in ipairs { a, b, c } do
        wait.for_fact("the list of switches", 5, function() return off(each) == (on and "" or "code by token joe") end)
      end
    end
    wait.quietly(1)
    for _, each in ipairs(all) do assert.same({ "tools", "tools", "tools", "tools" }, fanned.told(each)) end
    fanned.close(table.unpack(all))
    for _, g in ipairs { a, b, c } do g:stop() end
  end)

  it_real("holds for a node that starts later, and again after the server was emptied", function()
    local server <close> = redis.start()
    local alone <close> = nodes_at(server, 1)
    local a = alone[1]
    assert.equal(0, (switch(a, false)))
    local b <close> = fanned.node(server.at, options())
    local mine = fanned.session(b)
    wait_on({ mine }, false)
    server:cli "FLUSHALL"
    wait.for_fact("the switches in the server", 30, function() return server:cli("HGETALL", "mp:spec:w"):find "tool:code" end)
    local c <close> = fanned.node(server.at, options())
    local other = fanned.session(c)
    wait_on({ other }, false)
    assert.equal(0, (switch(c, true)))
    wait_on({ mine, other }, true)
    fanned.close(mine, other)
    for _, g in ipairs { a, b, c } do g:stop() end
  end)

  it_real("acts here and says so while the server is away, and on all nodes once it is back", function()
    local server <close> = redis.start()
    local both <close> = nodes_at(server, 2)
    local a, b = table.unpack(both)
    local mine, other = fanned.session(a), fanned.session(b)
    server:stop()
    local exit, out, err = switch(a, false)
    assert.same({ 1, "tool code is off\n" }, { exit, out })
    assert.matches("the other nodes switch when it is back", err)
    assert.is_false(is_on(mine))
    assert.is_true(is_on(other))
    server:begin()
    wait_on({ mine, other }, false)
    assert.equal(0, (switch(b, true)))
    wait_on({ mine, other }, true)
    -- Both switch while they are apart: the same version, and off wins.
    server:stop()
    assert.equal(1, (switch(a, false)))
    assert.equal(1, (switch(b, false)))
    assert.equal(1, (switch(b, true)))
    assert.equal(1, (switch(a, true)))
    assert.equal(1, (switch(a, false)))
    server:begin()
    wait_on({ mine, other }, false)
    fanned.close(mine, other)
    for _, g in ipairs { a, b } do g:stop() end
  end)

  it_real("counts what the others have decided since, not what a node kept in its file", function()
    local server <close> = redis.start()
    local more = options()
    more.config.store = { file = "store.db" }
    local a <close> = fanned.node(server.at, more)
    local b <close> = fanned.node(server.at, options())
    for _, g in ipairs { a, b } do wait_connected(g) end
    assert.equal(0, (switch(a, false)))
    local other = fanned.session(b)
    wait_on({ other }, false)
    a:stop()
    assert.equal(0, (switch(b, true)))
    more.dir = a.dir
    local again <close> = fanned.node(server.at, more)
    local mine = fanned.session(again)
    wait_on({ mine, other }, true)
    assert.equal("", off(again))
    assert.is_table(cjson.decode(server:cli("HGET", "mp:spec:w", "tool:code"):match "^%d+ on (.*)$"))
    fanned.close(mine, other)
    for _, g in ipairs { b, again } do g:stop() end
  end)
end)

describe("moonpool switch while the server is away", function()
  -- The nodes are a, b and c; all know each other.
  local function start()
    local made = options()
    made.nodes, made.tls, made.config.store = 3, true, { file = "store.db" }
    local three = cluster.start(made)
    for _, g in ipairs(three.all) do nodes.wait(g, nodes.are { n1 = "serving", n2 = "serving", n3 = "serving" }) end
    return three, table.unpack(three.all)
  end

  it_real("asks the other nodes itself, and says which it did not reach", function()
    local three <close>, a, b, c = start()
    local all = {}
    for i, g in ipairs { a, b, c } do all[i] = g:client "2026-07-28" end
    three.server:stop()
    assert.same({ 0, "tool place is off\nnode n2: off\nnode n3: off\n", "" }, { switch(a, false, "place") })
    local took = wait.timed(function() wait_on(all, false, "place") end)
    assert.is_true(took < 1 * wait.slower, took)
    c:signal "sigstop"
    local exit, out, err = switch(b, true, "place")
    c:signal "sigcont"
    assert.same({ 1, "tool place is on\nnode n1: on\nnode n3: not switched, at " .. c.node_address .. "\n" }, { exit, out })
    assert.matches("1 of 2 other nodes switch when it is back", err)
    wait_on({ all[1], all[2] }, true, "place")
    -- Off again, also for a node that is restarted meanwhile, and once the server is back.
    wait.for_fact("the node to answer again", 20, function() return (switch(a, false, "place")) == 0 end)
    wait_on(all, false, "place")
    all[3]:close()
    c:stop()
    local again <close> = gateway.start { dir = c.dir }
    all[3] = again:client "2026-07-28"
    assert.is_false(is_on(all[3], "place"))
    three.server:begin()
    wait.for_fact("the switch in the server", 20, function() return three.server:cli("HGET", "mp:spec:w", "tool:place"):find "^%d+ off " end)
    for _, g in ipairs { a, b, again } do nodes.wait(g, nodes.are { n1 = "serving", n2 = "serving", n3 = "serving" }) end
    for _, each in ipairs(all) do assert.is_false(is_on(each, "place")) end
    assert.same({ 0, "tool place is on\n", "" }, { switch(b, true, "place") })
    wait_on(all, true, "place")
    fanned.close(table.unpack(all))
    again:stop()
  end)

  -- The status of the answer to what a node asks another one.
  local function ask(g, text)
    local body = "tool:place\n" .. text
    local headers = { ["moonpool-hop"] = cluster.keys():seal {
      to = g.number, uid = g.uid, method = "POST", session = "", body = #body, address = "", principal = "anonymous", endpoint = 4,
    } }
    local port = tonumber(g.node_address:match ":(%d+)$")
    return client.request(port, { method = "POST", path = "/-/switch", headers = headers, body = body }).status
  end

  it_real("says which have noted a newer switch, and keep it", function()
    local made = options()
    made.tls = false
    local two <close>, a, b = cluster.start(made)
    for _, g in ipairs { a, b } do nodes.wait(g, nodes.are { n1 = "serving", n2 = "serving" }) end
    local mine, theirs = a:client "2026-07-28", b:client "2026-07-28"
    two.server:stop()
    local ahead = (os.time() + 30) * 1000
    assert.equal(204, ask(b, ("%d off {}"):format(ahead)))
    assert.is_false(is_on(theirs, "place"))
    for text, expected in pairs { ["%d off {}"] = 204, ["%d on {}"] = 409, ["x"] = 409 } do
      assert.equal(expected, ask(b, text:format(ahead - 1)), text)
    end
    local exit, out, err = switch(a, true, "place")
    assert.same({ 1, "tool place is on\nnode n2: not switched, at " .. b.node_address .. "\n" }, { exit, out })
    assert.matches("1 of 1 other nodes", err, 1, true)
    assert.same({ true, false }, { is_on(mine, "place"), is_on(theirs, "place") })
    fanned.close(mine, theirs)
  end)
end)
