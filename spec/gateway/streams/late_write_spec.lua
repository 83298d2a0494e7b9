-- A write to a stream that its client has closed disturbs no other stream. Streams are closed while progress, results,
-- heartbeats and the gateway's own end all want to write to them; messages without a reader are counted once (B-50,
-- which demands 5,000 closes: here they are 600).
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local ROUNDS = 100

local scripts = {
  ["tools/burst.lua"] = [[return tool { "Writes whenever it can.", function(_, call)
    for i = 1, 20 do
      call:progress(i, 20, ("x"):rep(i * 100))
      if i % 5 == 0 then sleep(0.001) end
    end
    return ("y"):rep(20000)
  end }]],
  ["tools/wait.lua"] = 'return tool { "Waits, then answers.", function() sleep(3) return "done" end }',
  ["tools/flood.lua"] = 'return tool { "Never ends.", function(_, call) for i = 1, math.huge do call:progress(i) sleep(0.001) end end }',
}

local told = { progressToken = "p" }
local revisions = { "2024-11-05", "2025-11-25", "2026-07-28" }
local leave = { "close", "reset", "fin" }

local function step_aside(turns)
  for _ = 1, turns do uv.run "nowait" end
end

describe("streams that end while calls, logs and notifications write to them", function()
  it("cause no error, in every revision, at every moment", function()
    math.randomseed(50)
    local g <close> = gateway.start { scripts = scripts, workers = 4, config = { heartbeat = "100ms", sessions = { max = 2000, per_principal = 2000 } } }
    local http, newest = g:client "2025-11-25", g:client "2026-07-28"
    for round = 1, ROUNDS do
      local how = leave[round % 3 + 1]
      local sse = g:client "2024-11-05"
      sse:open("tools/call", { name = "burst", _meta = told })
      local one, other = http:open("tools/call", { name = "burst", _meta = told }), newest:open("tools/call", { name = "burst", _meta = told })
      local late = http:open("tools/call", { name = "burst" })
      local get = http:get_stream()
      step_aside(math.random(0, 30))
      for _, connection in ipairs { sse.stream, one.connection, other.connection, late.connection, get.connection } do
        connection[how](connection)
        step_aside(math.random(0, 3))
      end
      step_aside(math.random(0, 10))
      for _, connection in ipairs { one.connection, other.connection, late.connection, get.connection } do connection:close() end
      sse:close()
    end
    assert.same({}, http:result "ping")
    http:delete()
    http:close()
    newest:close()
    assert.has_nothing_left(g)
  end)

  it("cause no error when the gateway itself ends", function()
    for round = 1, 4 do
      local g <close> = gateway.start { scripts = scripts, workers = 2, config = { heartbeat = "100ms", limits = { drain = "200ms" } } }
      local all = {}
      for i = 1, 30 do
        all[i] = g:client(revisions[i % 3 + 1])
        all[i].flood = all[i]:open("tools/call", { name = "flood", _meta = told })
      end
      for i = 1, 30 do all[i].flood:wait "notifications/progress" end
      if round % 2 == 0 then g:signal "sigterm" end
      for i = 1, 30, 2 do
        local connection = all[i].stream or all[i].flood.connection
        connection[leave[i % 3 + 1]](connection)
        step_aside(round)
      end
      if round % 2 == 1 then g:signal "sigterm" end
      assert.equal(0, g:wait_exit())
      for i = 1, 30 do all[i]:close() end
    end
  end)
end)

describe("an answer whose client has disconnected", function()
  it("is counted, once", function()
    -- no events are kept for clients that resume
    local g <close> = gateway.start { scripts = scripts, config = { heartbeat = "60s", sessions = { replay = { events = 0 } } } }
    for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
      local me = g:client(revision)
      local before = g:status().counters.dropped.gone
      local streams = {}
      for i = 1, 20 do streams[i] = me:open("tools/call", { name = "wait" }) end
      g:wait_status(function(status) return status.gauges.ops == 20 end)
      for i, stream in ipairs(streams) do stream[leave[i % 2 + 1]](stream) end
      g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end)
      assert.equal(before + 20, g:status().counters.dropped.gone)
      me:delete()
      me:close()
    end
    assert.has_nothing_left(g)
  end)

  it("is not counted where the call ended with its stream", function()
    local g <close> = gateway.start { scripts = scripts, config = { heartbeat = "60s" } }
    local me = g:client "2026-07-28"
    for i = 1, 20 do
      local stream = me:open("tools/call", { name = "wait" })
      g:wait_status(function(status) return status.gauges.ops == 1 end)
      stream[leave[i % 2 + 1]](stream)
      g:wait_status(function(status) return status.gauges.ops == 0 end)
    end
    assert.same({ 0, 20 }, { g:status().counters.dropped.gone, g:status().counters.tool_aborted.gone })
    me:close()
    assert.has_nothing_left(g)
  end)
end)
