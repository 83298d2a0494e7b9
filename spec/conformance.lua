-- `./dev conformance`: the official conformance suite against MOONPOOL; prints a line per run with its failures, and at
-- the end a line with the sums.
-- Exit code 0 only if no check failed or warned, and none is missing; with MOONPOOL_NODES=3, by which a balancer sends each
-- request to any of three nodes, but for those that spec/helpers/conformance_remainder.lua has for nodes. With an argument (auto, modern or legacy) each
-- run is made twice: without a gateway between, and with a second gateway which calls the first one as that. Then the
-- exit code is 0 only if exactly those checks fail through the second gateway that
-- spec/helpers/conformance_remainder.lua lists with their reasons.
local children = require "spec.helpers.children"
local cluster = require "spec.helpers.cluster"
local conformance = require "spec.helpers.conformance"
local remainder = require "spec.helpers.conformance_remainder"

local function say(...)
  io.write(string.format(...), "\n")
  io.flush()
end

-- With MOONPOOL_NODES=3 the gateway is several nodes behind a balancer.
local function run_all(g)
  local of_nodes = cluster.in_front() and { reasons = remainder.of "nodes", least = remainder.least.nodes }
  local passed, failed, warnings, complaints, wanted = 0, 0, 0, 0, 0
  for _, run in ipairs(conformance.runs) do
    local report = conformance.run(g, run, of_nodes)
    say("%-24s %3d of %3d passed, %d failed, %d warnings  (%.1f s)", run.name, report.passed, run.passes, report.failed, report.warnings,
      report.seconds)
    for _, complaint in ipairs(report.complaints) do
      say("  %s", (complaint:gsub("\n", "\n    ")))
    end
    passed, failed, warnings = passed + report.passed, failed + report.failed, warnings + report.warnings
    complaints, wanted = complaints + #report.complaints, wanted + run.passes
  end
  say("\nconformance: %s: %d of %d passed, %d failed, %d warnings", complaints == 0 and "ok" or "not ok", passed, wanted, failed, warnings)
  return complaints == 0
end

-- Prints the checks that failed as expected, below their reasons.
local function say_expected(reasons, seen)
  local by_reason, order = {}, {}
  for name, why in pairs(reasons) do
    if seen[name] then
      if not by_reason[why] then
        by_reason[why] = {}
        order[#order + 1] = why
      end
      table.insert(by_reason[why], name)
    end
  end
  table.sort(order)
  for _, why in ipairs(order) do
    table.sort(by_reason[why])
    say("\nfails as expected: %s", why)
    for _, name in ipairs(by_reason[why]) do say("  %s", name) end
  end
end

local function run_through(inner, outer, mode)
  local reasons, seen, complaints = remainder.of(mode), {}, 0
  for _, run in ipairs(conformance.runs) do
    local direct = conformance.run(inner, run)
    local report = conformance.run(outer, run, { reasons = reasons, least = remainder.least[mode] })
    say("%-24s without a gateway between %3d of %3d; through one %3d passed, %d failed, %d warnings  (%.1f s)", run.name, direct.passed, run.passes,
      report.passed, report.failed, report.warnings, report.seconds)
    for _, list in ipairs { direct.complaints, report.complaints } do
      for _, complaint in ipairs(list) do
        say("  %s%s", list == direct.complaints and "without a gateway between: " or "", (complaint:gsub("\n", "\n    ")))
        complaints = complaints + 1
      end
    end
    for name in pairs(report.expected) do seen[name] = true end
  end
  say_expected(reasons, seen)
  for name in pairs(reasons) do
    if not seen[name] then
      complaints = complaints + 1
      say("\nno longer fails; take it out of spec/helpers/conformance_remainder.lua: %s", name)
    end
  end
  say("\nconformance through a gateway (%s): %s", mode, complaints == 0 and "ok: what fails is what is expected" or "not ok")
  return complaints == 0
end

local ok, outcome = xpcall(function()
  local mode = arg[1]
  if mode and (mode == "nodes" or not remainder.least[mode]) then error("there is no '" .. mode .. "': auto, modern or legacy", 0) end
  local g <close> = conformance.start()
  if not mode then return run_all(g) end
  local outer <close> = conformance.start_before(g, mode)
  return run_through(g, outer, mode)
end, debug.traceback)
if not ok then
  say("\nconformance: not ok: %s", outcome)
end
children.kill_all()
os.exit(ok and outcome) -- exits without closing the Lua state, in which luv's callbacks would crash
