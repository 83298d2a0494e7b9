-- The program of `./dev soak [NAME] [MINUTES]`: prints a report, and ends with 1 if anything was wrong.
--   kills       SOAK_SEED=N SOAK_RATE=N SOAK_KILL_EVERY=SECONDS
--   gone        SOAK_SEED=N SOAK_VISITORS=N SOAK_STDIO=N (at once)
--   departures  SOAK_TIMES=N (clients of each form) SOAK_FORM=PATTERN (of the names of forms; all without it)
--   forwards    SOAK_AT_ONCE=N (calls in flight)
--   profiles    SOAK_PROFILES=N SOAK_CALLERS=N (calls in flight)
--   upgrades    SOAK_RATE=N (calls a second) SOAK_STREAMS=N SOAK_SSE=N SOAK_TASKS=N SOAK_UPGRADES=N
--   restarts    SOAK_KILLS=N SOAK_SESSIONS=N
--   statements  SOAK_CUTS=N SOAK_SEED=N
--   cluster     SOAK_FAULTS=N SOAK_RATE=N (calls a second) SOAK_SEED=N SOAK_KINDS=A,B (names of faults)
--   balanced    SOAK_CALLS=N SOAK_CALLERS=N
--   rolling     SOAK_ROUNDS=N SOAK_SSE=N
--   shared      SOAK_TRIALS=A,B (rates, quota, jobs, lost, moved)
local children = require "spec.helpers.children"

local name, minutes = "kills", arg[1]
if arg[1] and not tonumber(arg[1]) then name, minutes = arg[1], arg[2] end
minutes = tonumber(minutes or ({ gone = 10, forwards = 1, upgrades = 10 })[name] or 30)

local function variable(key) return tonumber(os.getenv("SOAK_" .. key)) end

local soaks = {}

function soaks.kills()
  local soak = require "spec.soak.soak"
  local report = soak.run {
    seconds = minutes * 60, kill_every = variable "KILL_EVERY" or math.min(180, minutes * 20), rate = variable "RATE", seed = variable "SEED", say = print,
  }
  print(soak.describe(report))
  return report.violation_count == 0
end

function soaks.gone()
  local gone = require "spec.soak.gone"
  local report = gone.run { seconds = minutes * 60, seed = variable "SEED", visitors = variable "VISITORS", stdio = variable "STDIO", say = print }
  print(gone.describe(report))
  return report.violation_count == 0
end

function soaks.departures()
  return require "spec.soak.departures".all { times = variable "TIMES" or 10000, form = os.getenv "SOAK_FORM", say = print }
end

function soaks.forwards()
  local at_once = variable "AT_ONCE" or 1000
  local report = require "spec.soak.forwards".run { at_once = at_once, seconds = minutes * 60 }
  print(("%d calls, %d in flight at once, over %d connections to the upstream"):format(report.calls, at_once, report.accepted))
  return report.accepted <= at_once + 10 -- up to ten more connections, for reading lists
end

function soaks.profiles()
  local report = require "spec.soak.profiles".run { profiles = variable "PROFILES" or 100, callers = variable "CALLERS", say = print }
  print(("%d profiles with %d samples, %d calls, of which %d ended without a result, %d for their processor time"):format(
    report.profiles, report.samples, report.calls, report.ended, report.aborted))
  return report.ended == 0 and report.aborted == 0
end

function soaks.statements()
  local statements = require "spec.soak.statements"
  local report = statements.run { cuts = variable "CUTS" or 1000, long = 100, seed = variable "SEED" }
  local late = statements.turns()
  print(statements.describe(report))
  print(statements.describe_turns(late))
  return #report.foreign == 0 and report.halves == 0 and report.left == 0 and report.slowest_ms <= 200
end

function soaks.restarts()
  local restarts = require "spec.soak.restarts"
  local report = restarts.run { rounds = variable "KILLS" or 50, sessions = variable "SESSIONS" or 2000, say = print }
  print(restarts.describe(report))
  return report.violation_count == 0
end

function soaks.cluster()
  local trial, kinds = require "spec.soak.cluster", nil
  for kind in (os.getenv "SOAK_KINDS" or ""):gmatch "[^,]+" do
    kinds = kinds or {}
    kinds[#kinds + 1] = kind
  end
  local report = trial.run {
    faults = variable "FAULTS" or 1000, seconds = minutes * 60, rate = variable "RATE", seed = variable "SEED", kinds = kinds, say = print,
  }
  print(trial.describe(report))
  return report.violation_count == 0
end

function soaks.balanced()
  local balanced = require "spec.soak.balanced"
  local report = balanced.run { calls = variable "CALLS" or 100000, callers = variable "CALLERS" or 400 }
  print(balanced.describe(report))
  return #report.violations == 0 and report.ran == report.calls
end

function soaks.rolling()
  local rolling = require "spec.soak.rolling"
  print(rolling.describe(rolling.run { rounds = variable "ROUNDS" or 10, streams = variable "SSE" or 10, say = print }))
  return true
end

function soaks.shared()
  local shared, is_well = require "spec.soak.shared", true
  local options = { rates = { seconds = 60 }, quota = { calls = 100000 }, jobs = { periods = 1000 }, lost = { nodes = 25, rounds = 4 },
    moved = { nodes = 25, rounds = 4 } }
  for trial in (os.getenv "SOAK_TRIALS" or "rates,quota,jobs,lost,moved"):gmatch "[^,]+" do
    local found = shared[trial](options[trial])
    print(found.text .. (found.is_well and "" or ": WRONG"))
    is_well = is_well and found.is_well
  end
  return is_well
end

function soaks.upgrades()
  local upgrades = require "spec.soak.upgrades"
  local report = upgrades.run {
    upgrades = variable "UPGRADES" or 20, seconds = minutes * 60, rate = variable "RATE" or 1000, streams = variable "STREAMS" or 500,
    sse = variable "SSE" or 100, tasks = variable "TASKS" or 50, say = print,
  }
  print(upgrades.describe(report))
  return report.violation_count == 0
end

if not soaks[name] or not minutes or minutes <= 0 then
  io.stderr:write("dev: soak [kills | gone | departures | forwards | profiles | upgrades | restarts | statements | cluster | balanced"
    .. " | rolling | shared] [MINUTES]\n")
  os.exit(2)
end
io.stdout:setvbuf "line"
local is_well = soaks[name]()
children.kill_all()
os.exit(is_well and 0 or 1)
