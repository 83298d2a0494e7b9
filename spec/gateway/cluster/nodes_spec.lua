-- Gateways of a cluster know each other by records in a server of Redis: each is seen, is stale when it does not renew
-- its record, and goes after a minute; and what keeps one from joining. Times are shorter, but where the text says so.
local uv = require "luv"
local cjson = require "cjson.safe"
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local nodes = require "spec.helpers.nodes"
local proxy = require "spec.helpers.proxy"
local redis = require "spec.helpers.redis"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

if not redis.find() then
  pending "redis-tools is not installed"
  return
end

local QUICK <const> = { node_turn_ms = 200, node_stale_ms = 2500, node_over_ms = 8000, redis_idle_ms = 2000 }

local function start(server, name, more)
  more = more or {}
  more.node, more.constants = name, more.constants or QUICK
  return nodes.start(type(server) == "string" and server or server.at, more)
end

local function moonpool(g, ...)
  return gateway.exec { "cluster", "--admin", "127.0.0.1:" .. g.admin_port, ... }
end

local function kill(g)
  g:kill()
  g.stopped = true
end

-- The status, Retry-After and body of an `initialize`.
local function initialize(g)
  local params = { protocolVersion = "2025-11-25", capabilities = cjson.decode "{}", clientInfo = { name = "spec", version = "1" } }
  local answer = g:connect():request {
    method = "POST", path = "/mcp", headers = { ["content-type"] = "application/json", accept = "application/json, text/event-stream" },
    body = { jsonrpc = "2.0", id = 1, method = "initialize", params = params },
  }
  return answer.status, answer.headers["retry-after"], answer.body
end

local function ready(g)
  local answer = g:admin "/readyz"
  return answer.status, answer.body
end

-- A record of a process that is not there. `more`: members.
local function record(more)
  local one = { uid = ("0"):rep(31) .. "1", node = "ghost", address = "127.0.0.1:1", renewals = 1, format = 1, version = "0.1.0", sessions = 0,
    state = "serving", scripts = ("0"):rep(16) }
  for name, value in pairs(more or {}) do one[name] = value end
  return one
end

describe("the nodes of a cluster", function()
  it("see each other within 3 s", function() -- with the real times
    local server <close> = redis.start()
    local a <close> = start(server, "a", { constants = {} })
    local b <close> = start(server, "b", { constants = {}, workers = 2 })
    local section = { name = "spec", node = "c", listen = "127.0.0.1:0", redis = "redis://" .. server.at }
    local c <close> = start(server, "c", { constants = {}, config = { cluster = section } })
    local began = uv.hrtime()
    for _, g in ipairs { a, b, c } do nodes.wait(g, nodes.are { a = "serving", b = "serving", c = "serving" }) end
    assert.is_true((uv.hrtime() - began) / 1e9 < 3 * wait.slower)
    local me = a:client "2025-11-25"
    local numbers = {}
    for _, one in ipairs(nodes.wait(b, function(cluster)
      for _, one in ipairs(cluster.nodes) do
        if one.node == "a" and one.sessions == 1 then return true end
      end
    end).nodes) do
      assert.is_true(one.number >= 1 and one.number <= 65535 and not numbers[one.number])
      numbers[one.number] = true
      assert.equal(one.node == "b" or nil, one.own)
      assert.is_true(#one.version > 0 and one.address:find "^127%.0%.0%.1:" ~= nil)
    end
    me:close()
    for number, one in pairs(nodes.records(server)) do
      assert.is_true(numbers[number])
      assert.same({ 1, "serving", 32, 1 }, { one.format, one.state, #one.uid, #one.keys })
      assert.is_nil(cjson.encode(one):find(nodes.SEAL, 1, true))
    end
    a:wait_status(function(status) return status.gauges.cluster_nodes.serving == 3 end)
    local status, out = moonpool(a, "status")
    assert.equal(0, status)
    for _, pattern in ipairs { "a %*  +127", "\nb  +127", "serving" } do assert.truthy(out:find(pattern), out) end
    assert.equal(200, (ready(a)))
  end)

  it("that end without a word are stale after 10 s, and nobody else is", function() -- with the real times
    local server <close> = redis.start()
    local a <close> = start(server, "a", { constants = {} })
    local b <close> = start(server, "b", { constants = {} })
    nodes.wait(a, nodes.are { a = "serving", b = "serving" })
    kill(b)
    local began = uv.hrtime()
    nodes.wait(a, nodes.are { a = "serving", b = "stale" })
    local took = (uv.hrtime() - began) / 1e9
    assert.is_true(took > 7.9 and took < 13 * wait.slower, took)
    a:wait_status(function(status) return status.gauges.cluster_nodes.stale == 1 end)
    local status, out = moonpool(a, "status")
    assert.equal(1, status)
    assert.truthy(out:find "\nb .* stale ", out)
  end)

  it("are forgotten after a minute, or when an operator says so", function()
    local server <close> = redis.start()
    nodes.put(server, 77, record())
    nodes.put(server, 78, record { uid = ("0"):rep(31) .. "2", node = "other", address = "127.0.0.1:2" })
    local a <close> = start(server, "a")
    nodes.wait(a, nodes.are { a = "serving", ghost = "stale", other = "stale" })
    for name, why in pairs { nobody = "no record of the cluster has this node", a = "its record is not stale yet" } do
      local status, _, err = moonpool(a, "forget", name)
      assert.equal(1, status)
      assert.truthy(err:find(why, 1, true), err)
    end
    local status, out, err = moonpool(a, "forget", "other")
    assert.equal(0, status, err)
    assert.truthy(out:find "1 of its records removed", out)
    nodes.wait(a, nodes.are { a = "serving", ghost = "stale" })
    assert.is_nil(nodes.records(server)[78])
    nodes.wait(a, nodes.are { a = "serving" })
    assert.is_nil(nodes.records(server)[77])
  end)

  it("write their records again after the server was emptied, and nobody is stale, nor loses a session", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a")
    local b <close> = start(server, "b")
    for _, g in ipairs { a, b } do nodes.wait(g, nodes.are { a = "serving", b = "serving" }) end
    local before, me = nodes.records(server), a:client "2025-11-25"
    server:cli "FLUSHALL"
    wait.for_fact("both records", 10, function()
      local now = nodes.records(server)
      for number, one in pairs(before) do
        if not now[number] or now[number].uid ~= one.uid then return false end
      end
      return true
    end)
    for _, g in ipairs { a, b } do
      nodes.wait(g, nodes.are { a = "serving", b = "serving" })
      assert.equal(0, g:status().gauges.cluster_nodes.stale)
    end
    assert.equal("pong", code.run(me, [[return "pong"]]))
    assert.is_nil(a:log():find("cluster number lost", 1, true))
    me:close()
  end)

  it("are not stale while the server stands still or is cut off, and go on", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local a <close> = start("127.0.0.1:" .. between.port, "a", { redis = { timeout = "100ms" } })
    local b <close> = start(server, "b")
    for _, g in ipairs { a, b } do nodes.wait(g, nodes.are { a = "serving", b = "serving" }) end
    local me = a:client "2025-11-25"
    server:kill "sigstop"
    nodes.wait(b, function(cluster) return (cluster.away_ms or 0) > QUICK.node_stale_ms + 1000 end)
    assert.same({ true, true }, { nodes.are { a = "serving", b = "serving" } (nodes.known(a)), nodes.are { a = "serving", b = "serving" } (nodes.known(b)) })
    assert.equal("pong", code.run(me, [[return "pong"]]))
    assert.equal(200, (initialize(a)))
    server:kill "sigcont"
    for _, g in ipairs { a, b } do nodes.wait(g, function(cluster) return not cluster.away_ms end) end
    between.swallows = true                                        -- only a's way
    nodes.wait(a, function(cluster) return (cluster.away_ms or 0) > QUICK.node_stale_ms + 1000 end)
    assert.is_true(nodes.are { a = "serving", b = "serving" } (nodes.known(a)))
    nodes.wait(b, nodes.are { a = "stale", b = "serving" })        -- it has no record that moves: it has to be asked
    between.swallows = false
    between:cut()
    for _, g in ipairs { a, b } do nodes.wait(g, nodes.are { a = "serving", b = "serving" }) end
    for _, g in ipairs { a, b } do assert.is_nil(g:log():find("cluster number lost", 1, true)) end
    me:close()
  end)

  it("keep members of later versions in their records, and do not read those of a later format", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a")
    nodes.joined(a)
    local number, own = next(nodes.records(server))
    own.later = { a = 1 }
    nodes.put(server, number, own)
    wait.for_fact("some renewals", 10, function() return nodes.records(server)[number].renewals > own.renewals + 3 end)
    assert.same({ a = 1 }, nodes.records(server)[number].later)
    nodes.put(server, 77, record { format = 2 })
    a:wait_log("cluster record not read", { node = "ghost" })
    assert.is_true(nodes.are { a = "serving" } (nodes.known(a)))
    server:cli("HSET", "mp:spec:n", "78", "no json", "x", "{}", "0", "{}", "79", '{"uid":[]}')
    local seen = nodes.known(a).nodes[1].age_ms
    assert.is_true(seen ~= nil and nodes.are { a = "serving" } (nodes.known(a)))
    assert.equal("no json", nodes.records(server)[78])
  end)

  it("end, and a process of the same address takes the place of one at once", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a", { address = "127.0.0.1:9" })
    nodes.joined(a)
    local before = next(nodes.records(server))
    kill(a)
    local again <close> = start(server, "a", { address = "127.0.0.1:9" })
    nodes.joined(again)
    local records = nodes.records(server)
    assert.is_true(next(records) ~= before and next(records, (next(records))) == nil)
  end)

  it("say that they leave while they drain", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a")
    local b <close> = start(server, "b", { config = { limits = { linger = "5s" } } })
    for _, g in ipairs { a, b } do nodes.wait(g, nodes.are { a = "serving", b = "serving" }) end
    b:signal "sigterm"
    nodes.wait(a, nodes.are { a = "serving", b = "leaving" })
    a:wait_status(function(status) return status.gauges.cluster_nodes.leaving == 1 end)
  end)
end)

describe("the number of a process", function()
  it("is another one where it is taken", function()
    local server <close> = redis.start()
    local constants = { process_number = 7 }
    for name, value in pairs(QUICK) do constants[name] = value end
    local a <close> = start(server, "a", { constants = constants })
    nodes.joined(a)
    local b <close> = start(server, "b", { constants = constants })
    local known = nodes.joined(b)
    assert.not_equal(7, known.number)
    local records = nodes.records(server)
    assert.same({ "a", "b" }, { records[7].node, records[known.number].node })
    local me = b:client "2025-11-25"
    assert.equal("pong", code.run(me, [[return "pong"]]))
    me:close()
  end)

  for what, change in pairs {
    ["the record of another process"] = function(own) own.uid, own.node = ("0"):rep(31) .. "1", "ghost" end,
    ["a renewal that it never sent"] = function(own) own.renewals = own.renewals + 1000 end,
  } do
    it("is given up for " .. what .. ", with its sessions", function()
      local server <close> = redis.start()
      local a <close> = start(server, "a")
      nodes.joined(a)
      local number, own = next(nodes.records(server))
      local me = a:client "2025-11-25"
      assert.equal("pong", code.run(me, [[return "pong"]]))
      change(own)
      nodes.put(server, number, own)
      local known = nodes.wait(a, function(cluster) return cluster.joined and cluster.number ~= number end)
      a:wait_log("cluster number lost", { node = "a" })
      local answer = me:post { jsonrpc = "2.0", id = 9, method = "ping" }
      assert.equal(404, answer.status)
      assert.not_equal(own.uid, nodes.records(server)[known.number].uid)
      assert.equal(own.uid, nodes.records(server)[number].uid)
      local again = a:client "2025-11-25"
      assert.equal("pong", code.run(again, [[return "pong"]]))
      again:close()
    end)
  end

  it("is not given up for a renewal that was sent and not answered, nor for a server that has lost some", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local a <close> = start("127.0.0.1:" .. between.port, "a", { redis = { timeout = "100ms" } })
    nodes.joined(a)
    local number, old = next(nodes.records(server))
    between.swallows_answers = true
    nodes.wait(a, function(cluster) return cluster.away_ms end)
    between.swallows_answers = false
    between:cut()
    nodes.wait(a, function(cluster) return not cluster.away_ms and cluster.joined end)
    local renewals = nodes.records(server)[number].renewals
    nodes.put(server, number, old)                                 -- a failover, or a backup
    wait.for_fact("the record to go on", 10, function() return nodes.records(server)[number].renewals > renewals end)
    assert.equal(number, nodes.known(a).number)
    assert.is_nil(a:log():find("cluster number lost", 1, true))
  end)
end)

describe("a node does not join", function()
  -- Says why in all places.
  local function is_refused(g, why)
    wait.for_fact("/readyz to say why", 10, function()
      local status, body = ready(g)
      return status == 503 and body:find(why, 1, true)
    end)
    g:wait_log("cluster not joined", nil)
    assert.truthy(g:log():find(why, 1, true), g:log())
    local status, after, body = initialize(g)
    assert.same({ 503, "2" }, { status, after })
    assert.truthy(body:find("has not joined its cluster", 1, true), body)
    assert.equal(503, g:connect():request { path = g.sse_url:match "//[^/]+(/.*)", headers = { accept = "text/event-stream" } }.status)
    local me = g:client "2026-07-28"                               -- stateless calls are served
    assert.equal("pong", code.run(me, [[return "pong"]]))
    me:close()
    local code_of, out = moonpool(g, "status")
    assert.equal(1, code_of)
    assert.truthy(out:find("has not joined: ", 1, true), out)
  end

  it("while the server is away, and does when it is there", function()
    local server <close> = redis.start()
    server:stop()
    local a <close> = start(server, "a")
    is_refused(a, "the server of cluster")
    server:begin()
    nodes.joined(a)
    wait.for_fact("/readyz", 10, function() return ready(a) == 200 end)
    a:wait_log("cluster joined", { node = "a" })
    assert.equal(200, (initialize(a)))
  end)

  it("while another process that lives has its name, and does when that has ended", function()
    local server <close> = redis.start()
    local first <close> = start(server, "a")
    nodes.joined(first)
    local second <close> = start(server, "a")
    is_refused(second, "another process has the name a, at 127.0.0.1:")
    assert.equal(200, (ready(first)))
    kill(first)
    nodes.joined(second)
  end)

  it("at the same moment as another one with its name: one of them does", function()
    local server <close> = redis.start()
    local held <close> = proxy.start(server.port)
    held.swallows = true
    local a <close> = start("127.0.0.1:" .. held.port, "a", { redis = { timeout = "100ms" } })
    local b <close> = start("127.0.0.1:" .. held.port, "a", { redis = { timeout = "100ms" } })
    held.swallows = false
    held:cut()
    wait.for_fact("one of them", 10, function() return nodes.known(a).joined or nodes.known(b).joined end)
    local other = nodes.known(a).joined and b or a
    nodes.wait(other, function(cluster) return (cluster.why or ""):find "has the name a" end)
    assert.is_false(nodes.known(other).joined)
    assert.is_true(nodes.known(other == a and b or a).joined)
  end)

  it("with a first seal key that others do not know, nor where theirs is unknown", function()
    local server <close> = redis.start()
    local new = "another secret of sixteen or more"
    local a <close> = start(server, "a")
    nodes.joined(a)
    local b <close> = start(server, "b", { seal_keys = { new, nodes.SEAL } })
    is_refused(b, "the first of seal_keys is unknown to a")
    local c <close> = start(server, "c", { seal_keys = { new } })
    is_refused(c, "the first of seal_keys is unknown to a")
    local d <close> = start(server, "d", { seal_keys = { nodes.SEAL, new } })   -- the first step of a rotation
    nodes.joined(d)
    a:stop()
    nodes.joined(b)
    assert.is_false(nodes.known(c).joined)
  end)

  it("while its clock differs by more than 30 s", function()
    if os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS" then return end -- a preloaded library: not with sanitizers
    local server <close> = redis.start()
    local step = os.tmpname()
    local file <close> = assert(io.open(step, "wb"))
    file:write(string.pack("<i8", -60))
    file:close()
    local library = uv.fs_realpath(gateway.binary:match "^(.*)/[^/]*$" .. "/stepped_clock.so")
    local a <close> = start(server, "a", { env = { CLOCK_STEP = step, LD_PRELOAD = library } })
    is_refused(a, "the clock of this machine is 60 s behind that of the server")
    os.remove(step)
  end)
end)

describe("an upgrade of a node", function()
  it("leaves two processes: the older one has a record with the address of the newer one", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a", { start = upgrading.start_quick })
    local b <close> = start(server, "b")
    for _, g in ipairs { a, b } do nodes.wait(g, nodes.are { a = "serving", b = "serving" }) end
    local me, before = a:client "2025-11-25", nodes.known(a).number
    assert.equal("pong", code.run(me, [[return "pong"]]))
    a:must_upgrade()
    local newer = nodes.joined(a).number
    assert.not_equal(before, newer)
    wait.for_fact("both records", 10, function()
      local records = nodes.records(server)
      return records[before] and records[newer] and records[before].state == "leaving" and records[newer].state == "serving"
    end)
    assert.equal(nodes.records(server)[newer].address, nodes.records(server)[before].address)
    assert.equal("pong", code.run(me, [[return "pong"]]))
    local again = a:client "2025-11-25"
    assert.equal("pong", code.run(again, [[return "pong"]]))
    nodes.wait(b, function(cluster) return #cluster.nodes == 3 end)
    assert.is_nil(a:log():find("cluster not joined", 1, true))
    again:close()
    me:close()
  end)

  it("takes sessions while the server is away", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a", { start = upgrading.start_quick })
    nodes.joined(a)
    server:stop()
    a:must_upgrade()
    assert.equal(200, (initialize(a)))
    server:begin()
    nodes.joined(a)
  end)
end)

describe("a gateway of a cluster", function()
  it("that others cannot reach has no record, and takes sessions", function()
    local server <close> = redis.start()
    local a <close> = nodes.start(server.at)
    assert.equal(200, (initialize(a)))
    assert.equal(200, (ready(a)))
    assert.equal(0, a:status().gauges.redis_connections)
    assert.is_false(nodes.known(a).joined)
    assert.same({}, nodes.records(server))
  end)

  it("that serves other scripts is seen by it", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a")
    local b <close> = start(server, "b", { scripts = { ["tools/other.lua"] = [[return tool { "Other.", function() return "" end }]] } })
    for _, g in ipairs { a, b } do nodes.wait(g, nodes.are { a = "serving", b = "serving" }) end
    a:wait_status(function(status) return status.gauges.cluster_hashes == 2 end)
    local _, out = moonpool(a, "status")
    for _, what in ipairs { "nodes serve different scripts", "nodes have different configurations" } do assert.truthy(out:find(what, 1, true), out) end
  end)

  it("goes on with its records over reloads", function()
    local server <close> = redis.start()
    local a <close> = start(server, "a", { workers = 2 })
    nodes.joined(a)
    for _ = 1, 3 do
      local file <close> = assert(io.open(a.dir .. "/scripts/tools/more.lua", "w"))
      file:write(('return tool { "More %s.", function() return "" end }'):format(uv.hrtime()))
      file:close()
      assert.equal(200, a:admin("/reload", "POST").status)
    end
    local number, own = next(nodes.records(server))
    wait.for_fact("renewals", 10, function() return nodes.records(server)[number].renewals > own.renewals + 5 end)
    assert.is_true(nodes.known(a).joined)
    assert.has_nothing_left(a)
  end)
end)
