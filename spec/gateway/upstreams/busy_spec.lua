-- How many requests are in flight at an upstream, and how many wait, where the configuration does not say: as many as a
-- gateway of some hundred users needs over HTTP, and fewer for a program. An upstream that is busy names its keys.
local upstream = require "spec.helpers.upstream"

local MANY <const> = 200 -- more than the 128 that an upstream takes in flight and waiting together as a program

local function hold(c, count)
  local streams = {}
  for i = 1, count do streams[i] = c:open("tools/call", { name = "one_hold", arguments = {} }) end
  return streams
end

describe("calls of an upstream", function()
  it("run at once over HTTP without a limit that the configuration names", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway { one = u }
    local streams = hold(g:client "2026-07-28", MANY)
    u:wait_held(MANY)
    u:release()
    for _, stream in ipairs(streams) do assert.equal("released", upstream.text(stream:answer(20))) end
  end)

  it("are 64 at once by default in a program", function()
    local u <close> = upstream.start { revision = "2026-07-28", transport = "stdio" }
    local g <close> = upstream.gateway { one = u }
    local streams = hold(g:client "2026-07-28", 70)
    u:wait_held(64)
    g:wait_status(function(status) return status.upstreams.one.waiting == 6 end)
    u:release()
    u:wait_held(6)
    u:release()
    for _, stream in ipairs(streams) do assert.equal("released", upstream.text(stream:answer(20))) end
  end)

  it("are refused with the names and values of the keys", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { calls = 1, waiting = 0 } } })
    local c = g:client "2026-07-28"
    local streams = hold(c, 1)
    u:wait_held(1)
    local _, message = upstream.failure(c:call("tools/call", { name = "one_echo", arguments = {} }), "not_run", "busy")
    assert.matches("is busy (`calls: 1` of its requests run, and `waiting: 0` of them wait)", message, 1, true)
    u:release()
    assert.equal("released", upstream.text(streams[1]:answer(20)))
  end)
end)
