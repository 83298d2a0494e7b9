-- Calls of many clients before three nodes behind a balancer, all with the id 1: `./dev soak balanced`, and some thousands
-- in the suite. Each gets its own answer, once, and runs once; no session is unknown on any node.
--   local report = balanced.run { calls = 100000, callers = 400 }       -- report.violations is empty if all is well
local callers = require "spec.soak.callers"
local cluster = require "spec.helpers.cluster"
local uv = require "luv"
require "spec.helpers.asserts"

local balanced = {}

local SHOWN <const> = 20

--- `options`: calls, callers (in all, a quarter of them of HTTP+SSE, a quarter without sessions). Gives { calls, ran,
--- seconds, forwards, violations }.
function balanced.run(options)
  local report = { violations = {} }
  local g <close> = cluster.balanced { scripts = callers.scripts, constants = callers.constants }
  local quarter, began = options.callers // 4, uv.hrtime()
  local load = callers.start { name = "call", port = g.port, modern = quarter, sse = quarter, sessions = options.callers - 2 * quarter, most = options.calls,
    report = function(text) if #report.violations < SHOWN then report.violations[#report.violations + 1] = text end end }
  load:stop(600)
  report.seconds = (uv.hrtime() - began) / 1e9
  local logs = {}
  report.forwards = 0
  for i, one in ipairs(g.nodes) do
    logs[i] = one:log()
    for _, other in ipairs(g.nodes) do report.forwards = report.forwards + cluster.forwards(one, other, "answered") end
  end
  report.calls, report.ran, report.counts = load.calls, load:reckon(logs), load.counts
  return report
end

function balanced.describe(report)
  return ("%d calls, of which %d ran, in %.0f s, %d by way of another node; %d violations\n%s"):format(report.calls, report.ran, report.seconds,
    report.forwards, #report.violations, table.concat(report.violations, "\n"))
end

return balanced
