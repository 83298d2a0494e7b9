-- lane: first
-- The worst scripts, on both workers at once, beside fifty clients that must not notice them.
local gateway = require "spec.helpers.gateway"
local memory = require "spec.helpers.memory"
local wait = require "spec.helpers.wait"
local worst = require "spec.helpers.worst"

local CALLERS <const> = 50

-- Fifty clients, each of which calls `ok` again as soon as it has an answer; `stop` returns the number of answers, and
-- every wrong answer.
local function start_callers(g)
  local callers = { answered = 0, wrong = {} }
  for i = 1, CALLERS do
    local c = g:client "2026-07-28"
    callers[i] = { client = c, stream = c:open("tools/call", { name = "ok" }) }
  end
  function callers:look()
    for _, caller in ipairs(self) do
      if caller.stream:has_begun() then
        local answer = caller.stream:answer(10)
        if not (answer.result and answer.result.content[1].text == "ok") then self.wrong[#self.wrong + 1] = answer end
        self.answered = self.answered + 1
        caller.stream:close()
        caller.stream = caller.client:open("tools/call", { name = "ok" })
      end
    end
  end
  function callers:stop()
    for _, caller in ipairs(self) do
      local answer = caller.stream:answer(20)
      if not answer.result then self.wrong[#self.wrong + 1] = answer end
      caller.stream:close()
      caller.client:close()
    end
    return self
  end
  return callers
end

-- Calls `name` once on each of eight connections, which both workers share, until all calls are answered.
local function attack(g, name, callers)
  local attackers, streams = {}, {}
  for i = 1, 8 do
    attackers[i] = g:client "2026-07-28"
    streams[i] = attackers[i]:open("tools/call", { name = name })
  end
  wait.for_fact(name .. " to be answered", 120, function()
    callers:look()
    for _, stream in ipairs(streams) do
      if not stream:has_begun() then return false end
    end
    return true
  end)
  for i, c in ipairs(attackers) do
    streams[i]:close()
    c:close()
  end
end

describe("scripts that do their worst on both workers at once", function()
  for _, name in ipairs(worst.names()) do
    it(("(%s) fail alone: fifty callers are all answered, and the gateway is healthy"):format(name), function()
      local g <close> = gateway.start {
        scripts = worst.tools(), env = memory.environment(), config = { limits = { call = { cpu = "300ms", time = "20s" } } },
      }
      local callers = start_callers(g)
      attack(g, name, callers)
      callers:stop()
      assert.same({}, callers.wrong)
      assert.truthy(callers.answered > 0, callers.answered)
      assert.equal(200, g:admin("/healthz").status)
      assert.has_nothing_left(g)
    end)
  end

  it("do not delay SIGTERM", function()
    local g <close> = gateway.start {
      scripts = worst.tools(), env = memory.environment(),
      config = { limits = { call = { cpu = "30s", time = "60s" }, drain = "1s" } },
    }
    local clients = {}
    for _, name in ipairs(worst.names()) do
      for _ = 1, 2 do
        local c = g:client "2026-07-28"
        c:open("tools/call", { name = name })
        clients[#clients + 1] = c
      end
    end
    g:wait_status(function(status) return status.gauges.requests_in_flight > 0 end)
    g:signal "sigterm"
    g:wait_exit(15) -- seconds, half of limits.call.cpu: limits.drain, a second after it, and time for a busy machine
    for _, c in ipairs(clients) do c:close() end
  end)
end)
