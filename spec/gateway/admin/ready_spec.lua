-- /readyz: whether the gateway should get traffic. How long a limit must be reached is in spec/modules/hysteresis_spec.lua.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local scrape = require "spec.helpers.scrape"
local wait = require "spec.helpers.wait"

local scripts = { ["tools/hold.lua"] = "return tool { 'Waits.', function() sleep(100) end }" }

local function wait_ready(g, status)
  return wait.for_fact("/readyz to answer " .. status, 30, function()
    local answer = g:admin "/readyz"
    return answer.status == status and answer
  end)
end

describe("GET /readyz", function()
  it("answers 503 while a limit is nearly reached, and says which", function()
    local g <close> = gateway.start { scripts = scripts, constants = { ready_calls_percent = 50 },
      config = { limits = { calls_in_flight = 4 } } }
    assert.equal("ready\n", wait_ready(g, 200).body)
    local c <close> = g:client "2026-07-28"
    local one, two = c:open("tools/call", { name = "hold" }), c:open("tools/call", { name = "hold" })
    local answer = wait_ready(g, 503)
    assert.matches("not ready: calls at 50 % of the limit, and traffic is wanted below 50 %", answer.body, 1, true)
    assert.equal("5", answer.headers["retry-after"])
    answer = client.request(g, { path = "/readyz", headers = { Host = "evil.example" } }, { admin = true })
    -- only operators may learn which limit is reached
    assert.same({ 503, "not ready\n" }, { answer.status, answer.body })
    g:wait_log("not ready", { why = "calls" })
    scrape.wait(g, { moonpool_ready = 0 })
    assert.equal(200, g:admin "/healthz".status)
    one:hang_up()
    two:hang_up()
    local last, steps = 5, 0 -- ready after five seconds below the limit: Retry-After is what is left of them
    wait.for_fact("/readyz to answer 200", 30, function()
      local now = g:admin "/readyz"
      local seconds = tonumber(now.headers["retry-after"]) or 0
      assert.is_true(seconds <= last and (seconds >= 1) == (now.status == 503))
      steps = steps + (seconds < last and 1 or 0)
      last = seconds
      return now.status == 200
    end)
    assert.is_true(steps >= 2)
    g:wait_log("ready again", { why = "calls" })
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("moonpool_saturation_ratio", function()
  it("has each resource with a limit", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { calls_in_flight = 4 } } }
    local c <close> = g:client "2026-07-28"
    local _ <close> = c:open("tools/call", { name = "hold" })
    g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
    local text, found = scrape.text(g), {}
    for resource, value in text:gmatch 'moonpool_saturation_ratio{resource="([%w_]+)"} ([%d.]+)' do
      found[#found + 1] = resource
      assert.is_true(tonumber(value) >= 0 and tonumber(value) <= 1, resource)
    end
    assert.equal("calls connections fds listeners loop lua_memory pool replay sessions store stream_bytes tasks", table.concat(found, " "))
    scrape.wait(g, { ['moonpool_saturation_ratio{resource="calls"}'] = 0.25 })
    assert.matches("\nmoonpool_overloaded 0\n", text)
    for _, resource in ipairs { "fds", "lua_memory", "connections" } do
      assert.is_true(tonumber(text:match('resource="' .. resource .. '"} ([%d.]+)')) > 0, resource)
    end
  end)
end)
