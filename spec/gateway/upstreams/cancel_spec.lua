-- A call that its client cancels is cancelled at its upstream, with the upstream's own id; other calls are not.
-- pairs: cancellation; clients 2025-06-18..; upstreams 2024-11-05 sse
-- pairs: cancellation; clients 2025-06-18..; upstreams 2025-11-25.. http
-- pairs: cancellation; clients 2025-06-18..; upstreams 2025-06-18 stdio
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local raw = upstream.raw

local function hold(c, key) return c:open("tools/call", { name = "hold", arguments = { key = key } }) end

for _, row in ipairs(upstream.kinds()) do
  describe(("at an upstream of %s over %s"):format(row[1], row[2]), function()
    local u, g
    local by_stream = row[1] == "2026-07-28" and row[2] == "http"

    lazy_setup(function()
      u = upstream.start { revision = row[1], transport = row[2] }
      g = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    end)
    lazy_teardown(function()
      local _ <close> = g -- luacheck: ignore 211
      u:close()
    end)

    -- Over HTTP an upstream of 2026-07-28 sees that the stream is closed, and all others get a notification.
    local function wait_cancelled(x)
      wait.for_fact("the call to be cancelled", 20, function()
        if by_stream then return x.entry.left end
        for _, entry in ipairs(u:all { method = "notifications/cancelled" }) do
          if raw.at(entry.text, "params", "requestId") == x.id and entry.session == x.session then return true end
        end
      end)
      assert.is_true(not by_stream or #u:all { method = "notifications/cancelled" } == 0)
    end

    it("a cancelled call ends, and the others go on", function()
      local c <close> = g:client "2025-11-25"
      local one, two = hold(c, "one"), hold(c, "two")
      u:wait_held(2)
      local x = u:wait_held(1, "one")[1]
      c:notify("notifications/cancelled", { requestId = one.id })
      wait_cancelled(x)
      u:release "two"
      assert.equal("released", upstream.text(two:answer()))
      for _, entry in ipairs(u:all { tool = "hold" }) do assert.is_true(entry.exchange == x or not (entry.cancelled or entry.left)) end
    end)

    it("a client of 2026-07-28 cancels by hanging up", function()
      local c <close> = g:client "2026-07-28"
      local one, two = hold(c, "three"), hold(c, "four")
      u:wait_held(1, "four")
      local x = u:wait_held(1, "three")[1]
      one:hang_up()
      wait_cancelled(x)
      u:release "four"
      assert.equal("released", upstream.text(two:answer()))
    end)

    it("a client of an older revision that hangs up does not cancel", function()
      local c <close> = g:client "2025-06-18"
      local one = hold(c, "five")
      local x = u:wait_held(1, "five")[1]
      one:hang_up()
      assert.equal("{}", (upstream.text(c:call("tools/call", { name = "look", arguments = { n = 1 } })):gsub('"n":1', "")))
      assert.is_nil(x.entry.cancelled or x.entry.left)
      u:release()
    end)

    it("a session that is deleted cancels its calls", function()
      local c <close> = g:client "2025-11-25"
      hold(c, "six")
      local x = u:wait_held(1, "six")[1]
      c:delete()
      wait.for_fact("the call to end", 20, function() return x.over end)
    end)

    it("a call that is cancelled at once is never cancelled before it came", function()
      local c <close> = g:client "2025-11-25"
      local ids = {}
      for i = 1, 30 do
        ids[i] = hold(c, "seven").id
        c:notify("notifications/cancelled", { requestId = ids[i] })
      end
      u:wait({ tool = "hold" }, 1)
      wait.for_fact("all calls to end", 20, function()
        for _, id in ipairs(ids) do c:notify("notifications/cancelled", { requestId = id }) end -- one that came before its call is ignored
        for _, entry in ipairs(u:all { tool = "hold" }) do
          if not entry.exchange.over then return false end
        end
        return true
      end)
      wait.for_fact("each cancelled request to come", 20, function() return #u.mistakes == 0 end)
    end)
  end)
end
