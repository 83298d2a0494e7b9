-- `./dev conformance`: the official conformance suite against MOONPOOL; prints a line per run with its failures, and at the end a line with the sums.
-- Exit code 0 only if no check failed or warned, and none is missing.
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
  g:stop()
  say("\nconformance: %s: %d of %d passed, %d failed, %d warnings", complaints == 0 and "ok" or "not ok", passed, wanted, failed, warnings)
  return complaints == 0
end

local ok, outcome = xpcall(function()
  local g <close> = conformance.start()
  return run_all(g)
end, debug.traceback)
if not ok then
  say("\nconformance: not ok: %s", outcome)
end
children.kill_all()
os.exit(ok and outcome) -- exits without closing the Lua state, in which luv's callbacks would crash
