-- Each change of an upstream's state is an event: one log line, a gauge, and the time of the next try, however it fails
-- and however many calls meet it.
local free_port = require "spec.helpers.free_port"
local low = require "spec.helpers.upstream.low"
local trusted = require "spec.helpers.trusted"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local faults = upstream.faults
local EVENTS <const> = { ["upstream down"] = true, ["upstream refuses the credential"] = true, ["upstream up"] = true }

-- { what, fault of every request, state, event }
local CASES <const> = {
  { "hangs", faults.hangs(), "down", "upstream down" }, { "answers no JSON", faults.answers "not JSON", "down", "upstream down" },
  { "answers 500", faults.answers_http(500, {}, "no"), "down", "upstream down" }, { "closes the connection", faults.dies(), "down", "upstream down" },
  { "answers 401", faults.status(401), "barred", "upstream refuses the credential" },
}

-- Opens a channel and sends one message; if the channel is refused, returns the seconds after which to try again.
local CHANNEL <const> = [[
local channel, state = host.upstream.channel("one", "key", {})
if not channel then return tostring(state.retry_after) end
local exchange = channel:send('{"jsonrpc":"2.0","id":1,"method":"initialize"}', { id = 1 })
local event, failure = exchange:next()
channel:failed(failure)
return "failed"
]]

local function lines_of(g, name)
  local found = {}
  for _, line in ipairs(g:log_lines()) do
    if EVENTS[line.event] and line.fields.upstream == name then found[#found + 1] = line.event end
  end
  return found
end

local function wait_gauge(g, value)
  wait.for_fact("moonpool_upstream_up is " .. value, 20, function()
    return g:admin("/metrics").body:match '\nmoonpool_upstream_up{upstream="one"} (%d)' == value
  end)
end

local function echo(c) return c:call("tools/call", { name = "echo", arguments = { n = 1 } }) end

local function state_of(g) return g:status().upstreams.one.state end

describe("an upstream that", function()
  for _, case in ipairs(CASES) do
    it(case[1] .. " is " .. case[3] .. " in one line, in /status and in the gauge, until it answers again", function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local members = { timeout = "300ms", circuit = { failures = 2, open = "100ms..200ms" } }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = members }) })
      local c <close> = g:client "2025-11-25"
      upstream.text(echo(c))
      assert.equal("up", state_of(g))
      u:when("*", case[2])
      wait.for_fact("the upstream is " .. case[3], 10, function()
        echo(c)
        return state_of(g) == case[3]
      end)
      for _ = 1, 5 do echo(c) end
      wait_gauge(g, "0")
      g:wait_log(case[4], { upstream = "one" })
      assert.same({ case[4] }, lines_of(g, "one"))
      u:behave()
      wait.for_fact("the upstream answers", 10, function() return echo(c).result ~= nil end)
      g:wait_log("upstream up", { upstream = "one" })
      assert.same({ case[4], "upstream up" }, lines_of(g, "one"))
      assert.equal("up", state_of(g))
      wait_gauge(g, "1")
      assert.equal(1, g:status().counters["upstream_outages"])
    end)
  end

  it("is not there is down in one line, and the next try is when calls are told", function()
    for _, failures in ipairs { 1, 5 } do
      local g <close> = low.start { one = { url = ("http://127.0.0.1:%d/mcp"):format(free_port()), circuit = { failures = failures, open = "20s..40s" } } }
      local me = g:client "2026-07-28"
      trusted.run(me, CHANNEL)
      local answer = trusted.run(me, CHANNEL)
      local told = assert(tonumber(answer), answer)
      local one = g:wait_status(function(status) return status.upstreams.one.state == "down" end).upstreams.one
      assert.is_true(one.retry_ms > 10000 and math.abs(one.retry_ms / 1000 - told) < 1, ("%d ms, %s s"):format(one.retry_ms, told))
      assert.same({ "upstream down" }, lines_of(g, "one"))
    end
  end)
end)
