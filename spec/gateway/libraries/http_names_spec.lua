-- Names of hosts that requests go to: who looks them up, how often, and what a lookup that hangs holds up.
local errand = require "spec.helpers.errand"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local wait = require "spec.helpers.wait"

local code = [[local res, why = http.get(args.url, { timeout = (args.n or 60000) / 1000 }) return { status = res and res.status, why = why }]]

local function server_here() return stub.start(function(_, reply) reply:send(200) end) end

-- A gateway whose names are `hosts`, and which keeps connections and names for `idle` ms.
local function start(hosts, idle, more)
  local options = { net = { "*.test:* private", "127.0.0.1:*" }, code = code, hosts = hosts, constants = { http_idle_ms = idle } }
  for key, value in pairs(more or {}) do options[key] = value end
  return errand.start(options)
end

-- How many threads of the gateway look up a name.
local function lookup_threads(g)
  local names <close> = assert(io.popen(("cat /proc/%d/task/*/comm"):format(g.pid)))
  local count = 0
  for name in names:lines() do count = count + (name == "lookup" and 1 or 0) end
  return count
end

local function wait_lookups(g, count)
  g:wait_status(function(status) return status.gauges.lookups == count end, 10)
  wait.for_fact("so many threads", 5, function() return lookup_threads(g) == count end)
end

describe("the addresses of a name", function()
  it("are looked up once while they are used, and connections to it are kept", function()
    local server <close> = server_here()
    local g <close> = start("once.test=127.0.0.1,!0", 15000, { workers = 2 })
    local me <close> = g:client "2026-07-28"
    for _ = 1, 8 do assert.equal(200, errand.run(me, { url = ("http://once.test:%d/"):format(server.port) }).status) end
    assert.is_true(server.accepted <= 2, server.accepted .. " connections of two workers")
    server:drop()
    assert.equal(200, errand.run(me, { url = ("http://once.test:%d/"):format(server.port) }).status)
    wait_lookups(g, 0)
  end)

  it("serve every port, by one lookup", function()
    local one <close> = server_here()
    local two <close> = server_here()
    local g <close> = start("once.test=127.0.0.1,!0", 15000)
    local me <close> = g:client "2026-07-28"
    for _, server in ipairs { one, two, one } do
      assert.equal(200, errand.run(me, { url = ("http://once.test:%d/"):format(server.port) }).status)
    end
  end)

  it("are looked up again when nothing has used them for a while", function()
    local server <close> = server_here()
    local g <close> = start("once.test=127.0.0.1,!0", 5)
    local me = g:client "2026-07-28"
    local url = ("http://once.test:%d/"):format(server.port)
    assert.equal(200, errand.run(me, { url = url }).status)
    wait.for_fact("the second lookup", 5, function() return errand.run(me, { url = url }).why == "GET " .. url .. ": host not found (DNS)" end)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("that could not be found are looked up by the next request", function()
    local server <close> = server_here()
    local g <close> = start("late.test=!0,127.0.0.1", 15000)
    local me <close> = g:client "2026-07-28"
    local url = ("http://late.test:%d/"):format(server.port)
    assert.equal("GET " .. url .. ": host not found (DNS)", errand.run(me, { url = url }).why)
    assert.equal(200, errand.run(me, { url = url }).status)
  end)

  it("are all tried, of IPv6 and of IPv4", function()
    local server <close> = server_here()
    local g <close> = start("six.test=::1+127.0.0.1;four.test=127.0.0.9+::1+127.0.0.1", 5)
    local me = g:client "2026-07-28"
    for _, name in ipairs { "six", "four" } do
      assert.equal(200, errand.run(me, { url = ("http://%s.test:%d/"):format(name, server.port) }).status)
    end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("stay with requests that wait for a connection, and go with those that are given up before it", function()
    local server <close> = stub.start(function(_, reply) reply:later(20, function() reply:send(200) end) end)
    local g <close> = errand.start { net = { "*.test:* private" }, hosts = "once.test=127.0.0.1,!0",
      constants = { http_idle_ms = 15000, http_per_host = 1 }, code = [[
      local given_up = {}
      for i = 1, args.n do given_up[i] = function() return (http.get(args.url, { timeout = 0.001 })) end end
      parallel(given_up)
      local kept = {}
      for i = 1, args.n do kept[i] = function() return try(http.get(args.url)).status end end
      local all = {}
      for i, got in ipairs(parallel(kept)) do all[i] = got[1] end
      return { all = all }]] }
    local me <close> = g:client "2026-07-28"
    for _ = 1, 2 do
      local got, is_error = errand.run(me, { url = ("http://once.test:%d/"):format(server.port), n = 8 })
      assert.is_falsy(is_error, got)
      assert.same({ 200, 200, 200, 200, 200, 200, 200, 200 }, got.all)
    end
  end)

  it("are looked up for what a redirect names", function()
    local server <close> = stub.start(function(request, reply)
      if request.path == "/" then return reply:send(302, { location = "http://b.test:" .. request.headers.host:match "%d+$" .. "/there" }) end
      reply:send(200)
    end)
    local g <close> = start("a.test=127.0.0.1;b.test=127.0.0.1", 5)
    local me = g:client "2026-07-28"
    assert.equal(200, errand.run(me, { url = ("http://a.test:%d/"):format(server.port) }).status)
    assert.equal("b.test:" .. server.port, server.requests[2].headers.host)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("while no name server answers", function()
  local function ask(me, server, name) return errand.run(me, { url = ("http://%s.test:%d/"):format(name, server.port) }) end

  local function warnings(g)
    local _, count = g:log():gsub("name server silent", "")
    return count
  end

  it("requests go to the addresses of before, which is told once, until it answers again", function()
    local server <close> = server_here()
    local g <close> = start("flaky.test=127.0.0.1,?0,127.0.0.1", 5)
    local me <close> = g:client "2026-07-28"
    wait.for_fact("the warning", 10, function()
      assert.equal(200, ask(me, server, "flaky").status)
      return warnings(g) == 1
    end)
    assert.equal(200, ask(me, server, "flaky").status)
    wait.for_fact("an answer of the name server", 20, function()
      assert.equal(200, ask(me, server, "flaky").status)
      return g:log():find("name server answers +host=flaky.test")
    end)
    assert.equal(1, warnings(g))
    assert.is_true(g:status().counters.old_addresses >= 2)
  end)

  it("requests hardly wait, and a connection that is kept serves them", function()
    local server <close> = server_here()
    local g <close> = start("silent.test=127.0.0.1,?20", 5, { workers = 2 })
    local me = g:client "2026-07-28"
    assert.equal(200, ask(me, server, "silent").status)
    wait.for_fact("a lookup that hangs", 10, function()
      assert.equal(200, ask(me, server, "silent").status)
      return g:status().gauges.lookups == 1
    end)
    for _ = 1, 4 do assert.equal(200, ask(me, server, "silent").status) end
    assert.equal(1, g:status().gauges.lookups)
    assert.equal(1, warnings(g))
    me:close()
  end)

  it("a name without addresses of before is not found", function()
    local server <close> = server_here()
    local g <close> = start("never.test=?0", 5)
    local me <close> = g:client "2026-07-28"
    assert.matches("host not found", ask(me, server, "never").why)
    assert.equal(0, warnings(g))
  end)

  it("a name that exists no more has no addresses, as soon as a name server says so", function()
    local server <close> = server_here()
    local g <close> = start("gone.test=127.0.0.1,?0,!0", 5)
    local me <close> = g:client "2026-07-28"
    assert.equal(200, ask(me, server, "gone").status)
    wait.for_fact("the end of the name", 20, function()
      local got = ask(me, server, "gone")
      return got.why and got.why:find "host not found"
    end)
    assert.is_true(g:status().counters.old_addresses >= 1)
  end)
end)

describe("a lookup that hangs", function()
  it("is one for all requests to the name, and ends with its thread", function()
    local g <close> = start("slow.test=!2", 5, { workers = 2 })
    local me = g:client "2026-07-28"
    local streams = {}
    for i = 1, 6 do streams[i] = errand.begin(me, { url = "http://slow.test/" }) end
    g:wait_status(function(status) return status.gauges.http_requests == 6 and status.gauges.lookups > 0 end)
    assert.equal(1, g:status().gauges.lookups)
    wait.for_fact("the name of its thread, which the thread sets", 5, function() return lookup_threads(g) == 1 end)
    streams[1]:close() -- the lookup goes on for the other five requests
    for i = 2, 6 do
      assert.matches("host not found", streams[i]:answer().result.structuredContent.why)
      streams[i]:close()
    end
    wait_lookups(g, 0)
    me:close()
    assert.has_nothing_left(g, 10)
  end)

  it("holds up neither a reload nor other names", function()
    local server <close> = server_here()
    local g <close> = start("slow.test=!4;a.test=127.0.0.1", 5)
    local me = g:client "2026-07-28"
    local stream = errand.begin(me, { url = "http://slow.test/" })
    g:wait_status(function(status) return status.gauges.lookups == 1 end)
    assert.equal(200, g:admin("/reload", "POST").status)
    assert.equal(200, errand.run(me, { url = ("http://a.test:%d/"):format(server.port) }).status)
    assert.equal(1, g:status().gauges.lookups)
    stream:close()
    me:close()
    wait_lookups(g, 0)
    assert.has_nothing_left(g, 10)
  end)

  it("does not hold up the end of the gateway", function()
    local g <close> = start("slow.test=!60", 5, { workers = 2 })
    local me = g:client "2026-07-28"
    for _ = 1, 3 do errand.begin(me, { url = "http://slow.test/" }) end
    g:wait_status(function(status) return status.gauges.http_requests == 3 end)
    g:signal "sigterm"
    g:wait_log "draining"
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
    me:close()
  end)

  it("is part of the time in which an upstream has to be connected to", function()
    local g <close> = gateway.start {
      workers = 1, env = errand.names "slow.test=!5",
      config = { upstreams = { one = { url = "http://slow.test:1/mcp", private = true } } }, constants = { upstream_connect_ms = 200 },
    }
    g:wait_status(function(status) return status.gauges.lookups == 1 end)
    g:wait_status(function(status) return status.gauges.http_requests == 0 end, 4)
    assert.is_true(g:status().gauges.lookups <= 1)
  end)
end)
