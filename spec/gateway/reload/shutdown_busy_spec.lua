-- B-81: SIGTERM with a thousand idle streams and fifty calls: every call is answered, every stream ends cleanly, and
-- the process ends soon.
-- shutdown_spec tests a second signal.
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local STREAMS <const>, CALLS <const> = 1000, 50

local scripts = { ["tools/sleep.lua"] = [[return tool { "Sleeps.", function() sleep(5) return "slept" end }]] }

describe("B-81 SIGTERM", function()
  it("delivers 50 results, ends 1,000 streams and exits with 0 within its limit", function()
    local g <close> = gateway.start { scripts = scripts, config = { heartbeat = "60s", limits = { drain = "10m" }, sessions = { per_principal = 2000 } } }
    local streams, calls = {}, {}
    for i = 1, STREAMS do streams[i] = client.connect(g):send { path = "/sse" } end
    for _, stream in ipairs(streams) do stream:wait_event("endpoint", 20) end
    local eras = { g:client "2026-07-28", g:client "2025-11-25" }
    for i = 1, CALLS do calls[i] = eras[i % 2 + 1]:open("tools/call", { name = "sleep" }) end
    g:wait_status(function(status) return status.gauges.requests_in_flight == CALLS end)
    g:signal "sigterm"
    g:wait_log "draining"
    wait.for_fact("connections to be refused", 20, function() return not pcall(client.connect, g) end)
    for _, call in ipairs(calls) do assert.equal("slept", call:answer(20).result.content[1].text) end
    for _, stream in ipairs(streams) do
      stream:wait_end(20)
      assert.is_nil(stream.error)
    end
    assert.equal(0, (g:wait_exit()))
    for _, stream in ipairs(streams) do stream:close() end
    for _, me in ipairs(eras) do me:close() end
  end)
end)
