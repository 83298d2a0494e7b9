-- `./dev conformance`: the official conformance suite against MOONPOOL; prints a line per run with its failures, and at the end a line with the sums.
-- Exit code 0 only if no check failed or warned, and none is missing. With an argument (auto, modern or legacy) the suite talks to a second gateway,
-- which calls the first one as that.
local children = require "spec.helpers.children"
local conformance = require "spec.helpers.conformance"

local function say(...)
  io.write(string.format(...), "\n")
  io.flush()
end

local function run_all(g)
  local passed, failed, warnings, complaints, wanted = 0, 0, 0, 0, 0
  for _, run in ipairs(conformance.runs) do
    local report = conformance.run(g, run)
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

local ok, outcome = xpcall(function()
  local g <close> = conformance.start()
  if not arg[1] then return run_all(g) end
  local outer <close> = conformance.start_before(g, arg[1])
  return run_all(outer)
end, debug.traceback)
if not ok then
  say("\nconformance: not ok: %s", outcome)
end
children.kill_all()
os.exit(ok and outcome) -- exits without closing the Lua state, in which luv's callbacks would crash
