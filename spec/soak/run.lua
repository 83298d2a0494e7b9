-- The program of `./dev soak [MINUTES]`: prints a report, and ends with 1 if anything was wrong.
--   lua5.4 spec/soak/run.lua [MINUTES]      SOAK_SEED=N SOAK_RATE=N SOAK_KILL_EVERY=SECONDS
local children = require "spec.helpers.children"
local soak = require "spec.soak.soak"

local minutes = tonumber(arg[1] or "30")
if not minutes or minutes <= 0 then
  io.stderr:write "dev: soak [MINUTES]\n"
  os.exit(2)
end
io.stdout:setvbuf "line"
local report = soak.run {
  seconds = minutes * 60, kill_every = tonumber(os.getenv "SOAK_KILL_EVERY") or math.min(180, minutes * 20), rate = tonumber(os.getenv "SOAK_RATE"),
  seed = tonumber(os.getenv "SOAK_SEED"), say = print,
}
print(soak.describe(report))
children.kill_all()
os.exit(report.violation_count == 0 and 0 or 1)
