-- Connections to upstreams and to the servers of scripts: as many as there are requests in flight, used again, and
-- closed when nothing uses them.
local errand = require "spec.helpers.errand"
local epolls = require "spec.helpers.epolls"
local forwards = require "spec.soak.forwards"
local stub = require "spec.helpers.stub"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local AT_ONCE <const> = 150 -- calls in flight: more than the 64 connections that an earlier version kept for reuse

local function held(c) return c:open("tools/call", { name = "hold" }) end

describe("connections to an upstream", function()
  it("are no more than the calls that were in flight at once, round after round", function()
    local report = forwards.run { at_once = AT_ONCE, rounds = 4 }
    -- up to ten more, for reading lists and for the second worker
    assert.is_true(report.accepted <= AT_ONCE + 10, report.accepted .. " connections")
  end)

  it("are closed once they are unused for long, while a call goes on", function()
    local u <close> = upstream.start { transport = "http", revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, {
      workers = 1, entries = upstream.plain({ one = u }, { one = { calls = 1000 } }), constants = { http_idle_ms = 500 },
    })
    local c <close> = g:client "2026-07-28"
    local calls = {}
    for i = 1, AT_ONCE do calls[i] = held(c) end
    u:wait_held(AT_ONCE)
    u:release()
    for _, call in ipairs(calls) do call:answer() end
    local last = held(c)
    u:wait_held(1)
    wait.for_fact(function() return "the others to be closed; open: " .. u.web:open() end, 15, function() return u.web:open() <= 3 end)
    u:release()
    assert.equal("released", upstream.text(last:answer()))
  end)

  it("that the upstream closes early make no call fail", function()
    local u <close> = upstream.start { transport = "http", revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { workers = 1, entries = upstream.plain({ one = u }, { one = { calls = 1000 } }) })
    local c <close> = g:client "2026-07-28"
    for _ = 1, 3 do
      local calls = {}
      for i = 1, 20 do calls[i] = held(c) end
      u:wait_held(20)
      u:release()
      for _, call in ipairs(calls) do assert.equal("released", upstream.text(call:answer())) end
      u.web:drop()
    end
  end)
end)

describe("what is kept for the next calls to an upstream", function()
  local function behind(u, more)
    return upstream.gateway({ one = u }, { workers = 1, entries = upstream.plain({ one = u }, { one = { calls = 1000 } }), constants = more })
  end

  local function hold_all(u, c, count)
    local calls = {}
    for i = 1, count do calls[i] = held(c) end
    u:wait_held(count)
    return function()
      u:release()
      for _, call in ipairs(calls) do assert.equal("released", upstream.text(call:answer())) end
    end
  end

  it("is as much as was in flight, in groups, and goes when that was long ago", function()
    local u <close> = upstream.start { transport = "http", revision = "2026-07-28" }
    local g <close> = behind(u, { http_idle_ms = 4000 })
    local c <close> = g:client "2026-07-28"
    local finish = hold_all(u, c, AT_ONCE)
    local gauges = g:status().gauges
    -- one group has at most 64 calls, and another client of the worker may have one for its requests
    assert.is_true(gauges.http_lanes >= 3 and gauges.http_lanes <= 4, gauges.http_lanes .. " groups")
    finish()
    g:wait_status(function(now) return now.gauges.http_handles <= 32 end, 10)
    -- the stream on which the upstream may tell of changes stays, and its group
    g:wait_status(function(now) return now.gauges.http_lanes <= 1 and now.gauges.http_handles <= 16 and now.gauges.outgoing_descriptors <= 1 end, 15)
    -- and all of it begins again
    finish = hold_all(u, c, AT_ONCE)
    finish()
  end)

  it("has few groups where many upstreams have few calls", function()
    local entries, stubs <close> = {}, setmetatable({}, { __close = function(list) for _, u in pairs(list) do u:close() end end })
    for i = 1, 5 do
      local name = "u" .. i
      stubs[name] = upstream.start { transport = "http", revision = "2026-07-28" }
      entries[name] = { calls = 1000 }
    end
    local g <close> = upstream.gateway(stubs, { workers = 1, entries = entries })
    local c <close> = g:client "2026-07-28"
    local calls = {}
    for name in pairs(stubs) do
      for _ = 1, 30 do calls[#calls + 1] = c:open("tools/call", { name = name .. "_hold" }) end
    end
    for _, u in pairs(stubs) do u:wait_held(30) end
    assert.is_true(g:status().gauges.http_lanes <= 2)
    for _, u in pairs(stubs) do u:release() end
    for _, call in ipairs(calls) do call:answer() end
  end)

  it("has a registration of each connection in an epoll set, which stays from call to call", function()
    local u <close> = upstream.start { transport = "http", revision = "2026-07-28" }
    local g <close> = behind(u)
    local c <close> = g:client "2026-07-28"
    for _ = 1, 3 do c:result("tools/call", { name = "echo", arguments = { text = "x" } }) end
    local before = epolls.of_connections_to(g.pid, u.port)
    assert.is_true(#before >= 2, "registered is the stream that listens to the upstream alone")
    for _ = 1, 40 do c:result("tools/call", { name = "echo", arguments = { text = "x" } }) end
    -- a tag has a number that rises with each registration
    local after = table.concat(epolls.of_connections_to(g.pid, u.port), " ")
    for _, tag in ipairs(before) do assert.is_truthy(after:find(tag, 1, true), tag .. " is not in " .. after) end
  end)

  it("is given up when the upstream closes a connection between two calls, and its descriptor serves another one", function()
    local u <close> = upstream.start { transport = "http", revision = "2026-07-28" }
    local g <close> = behind(u)
    local c <close> = g:client "2026-07-28"
    for _ = 1, 5 do
      for _ = 1, 3 do hold_all(u, c, 3)() end
      u.web:drop()
      -- the stream that listens to the upstream begins again
      wait.for_fact("no registration of a closed connection", 10, function() return #epolls.of_connections_to(g.pid, u.port) <= 1 end)
    end
  end)
end)

describe("connections of scripts", function()
  it("are no more than the requests that were in flight at once", function()
    local waiting = {}
    local server <close> = stub.start(function(_, reply) table.insert(waiting, reply) end)
    local g <close> = errand.start {
      net = { server.at }, constants = { http_idle_ms = 10000, http_per_host = 1000 },
      code = [[return try(http.get(args.url, { query = { n = args.n } })).status]],
    }
    local me <close> = g:client "2026-07-28"
    for _ = 1, 3 do
      local streams = {}
      for i = 1, AT_ONCE do streams[i] = errand.begin(me, { url = server.url, n = i }) end
      wait.for_fact("all requests", 10, function() return #waiting == AT_ONCE end)
      for _, reply in ipairs(waiting) do reply:json { ok = true } end
      waiting = {}
      for _, stream in ipairs(streams) do
        assert.equal("200", stream:answer(10).result.content[1].text)
        stream:close()
      end
    end
    assert.is_true(server.accepted <= AT_ONCE, server.accepted .. " connections")
  end)
end)
