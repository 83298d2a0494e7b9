-- One upstream that does not answer, and one client that does not read, cost only themselves.
local upstream = require "spec.helpers.upstream"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local faults = upstream.faults
local CALLS <const> = 20

describe("five upstreams, one of which", function()
  for what, row in pairs {
    ["never answers"] = { faults.hangs(), 30 }, ["closes each connection"] = { faults.dies(), 1 }, ["answers by 503"] = { faults.status(503), 1 },
  } do
    it(what .. ", serve the calls of the other four, and it is called again once it is back", function()
      local all, entries = {}, {}
      for i = 1, 5 do
        all["u" .. i] = upstream.start { revision = "2025-11-25", name = "u" .. i }
        entries["u" .. i] = { timeout = "30s", circuit = { failures = 3, open = "1s..2s" }, list_wait = "5s", retry = "never" }
      end
      do
        local bad = all.u1
        local g <close> = upstream.gateway(all, { entries = entries })
        local c <close> = g:client "2026-07-28"
        for i = 1, 5 do assert.is_truthy(c:result("tools/call", { name = ("u%d_echo"):format(i), arguments = { n = 1 } })) end
        bad:when("*", row[1])
        local stuck = {}
        for i = 1, 8 do stuck[i] = c:open("tools/call", { name = "u1_echo", arguments = { n = 2 } }) end
        for _ = 1, CALLS do
          for i = 2, 5 do c:result("tools/call", { name = ("u%d_echo"):format(i), arguments = { n = 3 } }) end
        end
        if row[2] > 1 then
          -- the calls to the stuck upstream are still unanswered: the other calls did not wait for them
          for _, stream in ipairs(stuck) do assert.same({}, stream:messages()) end
          for _, stream in ipairs(stuck) do stream:close() end
        else
          for _, stream in ipairs(stuck) do assert.is_truthy(stream:answer().error) end
        end
        bad:behave()
        wait.for_fact("the upstream to be served again", 30, function()
          return c:call("tools/call", { name = "u1_echo", arguments = { n = 4 } }).result
        end)
      end
      for _, u in pairs(all) do u:close() end
    end)
  end

  it("is gone, is tried about once a second, however many call", function()
    local all, entries = {}, {}
    for i = 1, 2 do
      all["u" .. i] = upstream.start { revision = "2025-11-25", name = "u" .. i }
      entries["u" .. i] = { circuit = { failures = 3, open = "1s..1s" }, retry = "never" }
    end
    do
      local bad = all.u1
      local g <close> = upstream.gateway(all, { entries = entries })
      local c <close> = g:client "2026-07-28"
      c:result("tools/call", { name = "u1_echo", arguments = { n = 1 } })
      bad:when("*", faults.dies())
      local before, asked, began = #bad.received, 0, uv.hrtime()
      for _ = 1, 300 do
        asked = asked + (c:call("tools/call", { name = "u1_echo", arguments = { n = 2 } }).error and 1 or 0)
        c:result("tools/call", { name = "u2_echo", arguments = { n = 3 } })
      end
      assert.equal(300, asked)
      local tried, seconds = #bad.received - before, (uv.hrtime() - began) / 1e9
      -- at most 20 requests, and ten a second: one attempt to open a channel may take several
      assert.is_true(tried <= 20 + 10 * seconds, ("%d requests in %.1f s"):format(tried, seconds))
      assert.is_true(g:status().counters.refused.upstream_down >= 300 - tried)
    end
    for _, u in pairs(all) do u:close() end
  end)
end)

describe("a client that stops reading", function()
  it("delays no other call of the same program, and is left behind if its notes fill limits.stream_queue", function()
    local u <close> = upstream.start { transport = "stdio", revision = "2025-06-18" }
    local g <close> = upstream.gateway({ one = u }, {
      entries = upstream.plain { one = u }, config = { limits = { stream_queue = "64KiB" } }, constants = { upstream_queue = 65536 },
    })
    local slow <close> = g:client "2026-07-28"
    local other <close> = g:client "2026-07-28"
    local stream = slow:open("tools/call", { name = "hold", arguments = { key = "a" }, _meta = { progressToken = "p" } })
    local x = u:wait_held(1)[1]
    x:report(1)
    stream:wait_event "notifications/progress"
    stream.connection:pause()
    local text = ("x"):rep(200)
    for n = 1, 20000 do
      x:report(n + 1, nil, text)
      if n % 1000 == 0 then assert.equal('{"n":7}', upstream.text(other:call("tools/call", { name = "look", arguments = { n = 7 } }))) end
    end
    assert.equal(1, #u:alive())
    g:wait_status(function(now) return now.gauges.requests_in_flight == 0 end)
    wait.for_fact("the end of the call at the upstream", 20, function() return x.cancelled end)
    stream.connection:resume()
    assert.is_true(stream.connection:is_closed_by_peer() or pcall(stream.connection.wait_closed, stream.connection))
  end)
end)
