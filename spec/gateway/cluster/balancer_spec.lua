-- Three nodes behind a balancer that sends each request to any of them.
local balanced = require "spec.soak.balanced"
local client = require "spec.helpers.client"
local cluster = require "spec.helpers.cluster"
local trial = require "spec.soak.cluster"
local wait = require "spec.helpers.wait"

local it = cluster.it(it, pending)
local PING <const> = { jsonrpc = "2.0", id = 1, method = "ping" }

describe("nodes behind a balancer", function()
  it("answer each of many calls with one id once, and run it once", function()
    local report = balanced.run { calls = 3000, callers = 100 }
    assert.same({}, report.violations)
    assert.equal(report.calls, report.ran)
    assert.is_true(report.calls >= 3000 and report.forwards > report.calls // 4, balanced.describe(report))
  end)

  it("know an ended session of HTTP+SSE no more, whichever gets the next message", function()
    local g <close> = cluster.balanced {}
    for i = 1, 30 do
      local me = g:client "2024-11-05"
      assert.same({}, me:call("ping").result)
      if i % 2 == 0 then me.stream:reset() else me.stream:close() end
      local at = g.nodes[i % 3 + 1]
      local soonest = math.huge
      local took = wait.timed(function()
        wait.for_fact("404", 20, function()
          local seconds, answer = wait.timed(client.request, at, { method = "POST", path = me.endpoint, body = PING })
          soonest = math.min(soonest, seconds)
          return answer.status == 404
        end)
      end)
      assert.is_true(took < (0.1 + 2 * soonest) * wait.slower * 2, took)
      me:close()
    end
    assert.has_nothing_left(g)
  end)

  it("keep what is promised while nodes, the server and connections fail", function()
    local report = trial.run { faults = 2, kinds = { "kill", "Redis stands still" }, is_short = true, warm_up = 0.5, rate = 150 }
    assert.same({}, report.violations, trial.describe(report))
    assert.is_true(report.load.counts.ok > 100, trial.describe(report))
  end)
end)
