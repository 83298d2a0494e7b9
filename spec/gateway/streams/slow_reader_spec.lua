-- A reader that stops reading costs a bounded number of bytes, loses its stream, and delays no other client (B-47,
-- B-48). Scaled down: 20 stalled readers beside 20 callers, a stall of 1 s instead of 30, a queue of 64 KiB.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local STALLED, QUEUE = 20, 64 * 1024
local PATIENCE <const> = 30 * wait.slower -- seconds

local config = { heartbeat = "60s", limits = { stream_queue = "64KiB" } }

local scripts = {
  ["tools/flood.lua"] = [[local much = ("x"):rep(8000)
return tool { "Reports much, for ever.", timeout = 600, function(_, call)
  for i = 1, math.huge do
    call:progress(i, nil, much)
    call:log("error", much)
    sleep(0.005)
  end
end }]],
  ["tools/echo.lua"] = 'return tool { "Echo.", input = { text = t.string }, function(args) return args.text end }',
}

-- A call whose client reads only the head of the response.
local function stall(g, revision)
  local me = g:client(revision, { buffer = 4096 })
  if revision == "2024-11-05" then me:result("logging/setLevel", { level = "debug" }) end -- the progress notifications of this call have no messages
  local meta = { progressToken = "p", ["io.modelcontextprotocol/logLevel"] = revision == "2026-07-28" and "debug" or nil }
  local stream = me:open("tools/call", { name = "flood", _meta = meta }, { buffer = 4096 })
  stream:wait "notifications/progress"
  stream.connection:pause()
  return me, stream
end

-- The seconds that each of `count` calls took, sorted.
local function time_calls(callers, count)
  local times = {}
  for i = 1, count do
    local me = callers[i % #callers + 1]
    local text = "call " .. i
    local answer
    times[i], answer = wait.timed(me.result, me, "tools/call", { name = "echo", arguments = { text = text } })
    assert.equal(text, answer.content[1].text)
  end
  table.sort(times)
  return times
end

-- Half of the batches of calls have none that took longer than this: what delays others does so in each batch, the
-- machine in some.
local function usual_worst(worst)
  table.sort(worst)
  return worst[(#worst + 1) // 2]
end

-- The longest call of each of `count` batches of 20.
local function time_batches(callers, count)
  local worst = {}
  for i = 1, count do
    local times = time_calls(callers, 20)
    worst[i] = times[#times]
  end
  return worst
end

for _, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
  describe("readers of " .. revision .. " that stop reading", function()
    it("lose their streams and use no more memory than their queues; other clients notice no delay", function()
      local g <close> = gateway.start { scripts = scripts, config = config, workers = 2, constants = { stall_ms = 1000 } }
      local callers = {}
      for i = 1, 20 do
        callers[i] = g:client(i % 2 == 0 and "2025-11-25" or "2026-07-28")
        callers[i]:result "tools/list"
      end
      local calm = usual_worst(time_batches(callers, 20))
      local stalled = {}
      for i = 1, STALLED do
        local me, stream = stall(g, revision)
        stalled[i] = { me = me, stream = stream }
      end
      local is_sse = revision == "2024-11-05"
      local most, rounds, loud = 0, 0, {}
      local status
      local started = uv.hrtime()
      repeat
        loud[#loud + 1] = time_batches(callers, 1)[1]
        status = g:status()
        most = math.max(most, status.gauges.queue_bytes)
        rounds = rounds + 1
        local ended = status.counters.streams_ended.slow == STALLED and (not is_sse or status.counters.sessions_closed.slow == STALLED)
      until ended or (uv.hrtime() - started) / 1e9 > PATIENCE
      assert.equal(STALLED, status.counters.streams_ended.slow)
      assert.equal(is_sse and STALLED or 0, status.counters.sessions_closed.slow)
      -- As much again may be on its way to the stream of 2024-11-05, whose worker need not be that of the call.
      assert.is_true(most > 0 and most <= STALLED * QUEUE * (is_sse and 2 or 1), most .. " bytes were queued")
      local worst = usual_worst(loud)
      assert.is_true(worst <= math.max(0.05, 10 * calm), ("calls took %g s, alone %g s"):format(worst, calm))
      for _, one in ipairs(stalled) do
        if one.me.delete then one.me:delete() end
        one.me:close()
      end
      for _, me in ipairs(callers) do
        if me.delete then me:delete() end
        me:close()
      end
      assert.has_nothing_left(g)
    end)
  end)
end

describe("one stalled reader", function()
  it("delays no other client of its worker", function()
    local g <close> = gateway.start {
      scripts = scripts, config = { heartbeat = "60s", limits = { stream_queue = "64MiB" } }, constants = { stall_ms = 600000 }, workers = 1,
    }
    local callers = {}
    for i = 1, 20 do
      callers[i] = g:client "2026-07-28"
      callers[i]:result "tools/list"
    end
    local calm = usual_worst(time_batches(callers, 25))
    local me, stream = stall(g, "2026-07-28")
    g:wait_status(function(status) return status.gauges.queue_bytes > 0 end)
    local loud = usual_worst(time_batches(callers, 25))
    assert.equal(1, g:status().gauges.streams_open) -- the stream was open all the time
    assert.is_true(loud <= math.max(0.02, 10 * calm), ("calls took %g s, alone %g s"):format(loud, calm))
    stream:close()
    me:close()
    for _, caller in ipairs(callers) do caller:close() end
    assert.has_nothing_left(g)
  end)
end)
