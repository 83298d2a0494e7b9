-- The jobs that are due at the time of fake.time: due_jobs and run_due_jobs of specs. Intervals count from the first
-- fake.time of an `it`, or from the previous run; times of day are due if they have passed since then. Like the
-- gateway, run_due_jobs does not catch up: however many times have passed, a job is run once.

local clock = require "moonpool.specs.clock"
local cron = require "moonpool.lib.cron"
local job = require "moonpool.things.job"
local problem = require "moonpool.runtime.diagnostic"
local sorted = require "moonpool.runtime.sorted_keys"

local schedule = {}

local LOOK_BACK = 31 * 86400   -- seconds into the past in which a time of day is searched

local began             -- the time when fake.time was first set
local runs = {}         -- name of a job -> { at, key }: when it was last run, and the name that cron.due gave to that time

-- The name of the last time of day since `from`; or nil.
local function last_time(times, from, now)
  for at = now // 60 * 60, math.max(from // 60 * 60, now - LOOK_BACK), -60 do
    local key = cron.due(times, at)
    if key then return key end
  end
end

-- The key of the cron time at which the job `one` is due; true if the job has an interval and is due; nil if it is not
-- due at `now`.
local function due_time(one, now)
  local last = runs[one.name]
  local from = last and last.at or began
  if one.off or one.source then return nil end
  if not one.times then return now - from >= one.every - 1e-6 or nil end
  local key = last_time(one.times, from, now)
  return key and not (last and last.key == key) and key or nil
end

--- Called when the clocks are set. If the new time is before the time from which intervals are counted, they are
--- counted from the new time.
function schedule.set(seconds)
  if not began or seconds < began then began, runs = seconds, {} end
end

--- The names of the jobs that are due now, sorted. `word` is the calling function of the spec, for errors.
function schedule.due(word)
  local now = clock.now()
  if not now then problem.raise(2, word .. " needs a time", "as in fake.time(os.time { year = 2026, month = 1, day = 1 })") end
  local names = {}
  for _, name in ipairs(sorted(job.all())) do
    if due_time(job.all()[name], now) then names[#names + 1] = name end
  end
  return names
end

--- Records that a job begins now.
function schedule.begin(name)
  local now = clock.now()
  local key = due_time(job.all()[name], now)
  runs[name] = { at = now, key = key }
end

function schedule.reset() began, runs = nil, {} end

return schedule
