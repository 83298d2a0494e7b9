-- Connections to upstreams and to the servers of scripts: as many as there are requests in flight, used again, and
-- closed when nothing uses them.
local errand = require "spec.helpers.errand"
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
