-- job { … } in scripts/jobs/: a function that runs periodically, on one worker at a time, and never twice at once; with
-- `cluster` on one of its gateways, which claims the run. And listen { … }, whose function runs for each message
-- (listening.lua).

local host = require "moonpool.host"
local lazy = require "moonpool.runtime.lazy"
local cluster_jobs = lazy "moonpool.lib.cluster_jobs"
local cron = lazy "moonpool.lib.cron"
local lease = lazy "moonpool.lib.lease"
local listening = lazy "moonpool.things.listening"
local hint_options = require "moonpool.things.hint_options"
local failure = require "moonpool.runtime.outcome"
local frozen = require "moonpool.runtime.frozen"
local json = require "moonpool.json"
local suggest = require "moonpool.runtime.suggest"

local job = {}

local MIN_PERIOD_S, MAX_PERIOD_S = 0.1, 30 * 86400
local CLOCK_CHECK_S = 5              -- seconds between checks of the clock, for jobs with a time of day
local MAX_JITTER_S = 3600
local RUN_MARK_S = 26 * 3600     -- seconds for which the store holds that a run of one minute has begun

local written = { name = "moonpool.job", what = "a job" }
local options = { every = "number", zone = "string", jitter = "number", timeout = "number", enabled = "boolean", where = "string" }
local option_names = { "every", "zone", "jitter", "timeout", "enabled", "where" }
local form = "as in job { \"What it does.\", every = 5 * minutes, function(call) … end }"

local jobs = {}
local loaded = { clock = 0, monotonic = 0 }      -- when the jobs were loaded

function job.new(spec) return frozen.new(written, {}, { spec = spec }) end
function job.listen(spec) return frozen.new(written, {}, { spec = spec, listens = true }) end

function job.is(value) return frozen.is(value, written) end

local function check_time(spec, name, complain)
  local value = spec[name]
  if type(value) == "number" and not (value >= MIN_PERIOD_S and value <= MAX_PERIOD_S) then
    complain(name, "'" .. name .. "' must be from 0.1 seconds to 30 days", "as in " .. name .. " = 5 * minutes")
  end
end

-- Reads `every` when it is a cron expression; reports errors in it, in `zone`, `where` and `jitter`.
local function read_times(spec, complain)
  local times, why
  if type(spec.every) == "string" and spec.every:find "%s" then
    times, why = cron.read(spec.every, type(spec.zone) == "string" and spec.zone or nil)
    if not times then
      complain(why:find "zone" and "zone" or "every", why, "as in every = \"0 3 * * 1-5\", zone = \"Europe/Berlin\"; or every = 5 * minutes")
      times = {}
    end
  elseif spec.zone ~= nil then
    complain("zone", "'zone' applies only to times of day", "as in every = \"0 3 * * 1-5\"")
  end
  if type(spec.where) == "string" and spec.where ~= "every" then
    complain("where", "'where' can only be \"every\"", "each gateway of a cluster runs the job then; without it one of them does")
  end
  if type(spec.jitter) == "number" and not (spec.jitter >= 0 and spec.jitter <= MAX_JITTER_S) then
    complain("jitter", "'jitter' must be from 0 to an hour", "as in jitter = 30 * seconds")
  end
  return times
end

--- Prepares the job that a file returned.
function job.build(name, value, _, complain)
  local spec = frozen.content(value).spec
  if frozen.content(value).listens then return listening.build(name, spec, complain, check_time) end
  if type(spec) ~= "table" then return complain("job", "job needs a table", form) end
  if type(spec[1]) ~= "string" then complain("job", "the first item of a job must be its description", form) end
  if type(spec[2]) ~= "function" then complain("job", "the second item of a job must be its function", form) end
  if spec.every == nil then complain("job", "a job needs 'every'", form) end
  local times = read_times(spec, complain)
  for option, given in pairs(spec) do
    local want = options[option]
    if want and type(given) ~= want and not (option == "every" and times) then
      complain(option, "'" .. option .. "' must be a " .. want .. ", not a " .. type(given), want == "number" and "as in " .. option .. " = 5 * minutes" or nil)
    elseif not want and option ~= 1 and option ~= 2 then
      complain(tostring(option), "job has no option '" .. tostring(option) .. "'",
        hint_options.of_thing(option, "job") or suggest.listed(tostring(option), option_names, "options"))
    end
  end
  check_time(spec, "every", complain)
  check_time(spec, "timeout", complain)
  return {
    name = name, description = spec[1], handler = spec[2], every = spec.every, zone = spec.zone, jitter = spec.jitter, times = times,
    timeout = spec.timeout, off = spec.enabled == false, is_shared = host.script.is_clustered and spec.where == nil,
  }
end

-- The times at which a job runs, as text for people.
local function words_of(one)
  if one.times then return one.zone and one.every .. " " .. one.zone or one.every end
  return ("every %g s"):format(one.every)
end

--- Replaces all jobs when the scripts have loaded: { name = job }. In specs, replays, and the process that `moonpool
--- call` starts, none begins by itself.
function job.set(made)
  jobs, loaded = made, { clock = os.time(), monotonic = host.time.now() }
  if host.script.is_apart then return end
  for name, one in pairs(made) do
    if one.source and not one.off then
      listening.start(one)
    elseif one.is_shared and not one.off then
      host.job.schedule(name, cluster_jobs.period(one), one.timeout, words_of(one), cluster_jobs.next(one, loaded.clock))
    elseif not one.off then
      host.job.schedule(name, one.times and CLOCK_CHECK_S or one.every, one.timeout, words_of(one), one.times and cron.next(one.times, loaded.clock))
    end
  end
end

function job.all() return jobs end

-- True if a job with a time of day is due in this minute or the last one, and no other worker has begun the run. The
-- minute before the one in which the jobs were loaded does not count, whatever the clock says since.
local function is_due(one)
  for back = 60, 0, -60 do
    local is_since_load = host.time.now() - loaded.monotonic + loaded.clock % 60 >= back
    local run = is_since_load and cron.due(one.times, host.time.clock() - back)
    if run and host.store.add("job:at:" .. one.name .. ":" .. run, "", RUN_MARK_S) == true then return true end
  end
  return false
end

local last_fence = 0

-- What the function of a job gets of its run. Without a cluster the fence is the time: then there is one process.
local function run_of(fence)
  last_fence = math.max(last_fence + 1, host.time.clock() * 1000000 // 1 | 0)
  return { fence = fence or last_fence }
end

--- Runs the function of a job: true and what it returned, or false and the error. `message` and `channel` are for one
--- that listens; `fence` for the run of a cluster.
function job.start(one, call, message, channel, fence)
  if one.source then return xpcall(one.handler, failure.handler, message, channel, call) end
  return xpcall(one.handler, failure.handler, call, run_of(fence))
end

-- Waits for a random part of the job's jitter, and runs it as job.start does.
local function start_later(one, call, ...)
  if one.jitter and one.jitter > 0 then host.time.sleep(one.jitter * (string.unpack("I4", host.random.bytes(4)) / 0x100000000)) end
  return job.start(one, call, ...)
end

-- When the job begins next, for people; nil: an interval after it has begun.
local function next_of(one)
  if one.is_shared then return cluster_jobs.next(one, host.time.clock()) end
  return one.times and cron.next(one.times, host.time.clock())
end

--- Called by C when the job is due, or has a message.
function job.run(call, name, message, channel)
  local one, ended, outcome, why_ended = jobs[name], false, nil, nil
  local _ <close> = setmetatable({}, { __close = function()
    if not one.source then host.store.delete("job:running:" .. name) end
    if outcome then host.job.note(name, outcome, next_of(one)) end
    if not ended then host.log.write("warn", "scheduled job cancelled", { name = name, why = why_ended }) end
  end })
  local held, fence
  if one.is_shared then held, fence = cluster_jobs.claim(one) end
  if one.is_shared and not held or not one.is_shared and one.times and not is_due(one) then
    ended = true
    return
  end
  host.job.note(name)                    -- begins the span of the job, too
  outcome = "cancelled"
  local ok, value, why
  if held then
    ok, value, why = lease.hold(held, "the job", start_later, one, call, nil, nil, fence)
  else
    ok, value, why = start_later(one, call, message, channel)
  end
  if ok == nil then
    why_ended = "it is no longer this gateway's: the server of cluster did not confirm that in time"
    return
  end
  ended = true
  if not ok and failure.is_expected(value) then
    value, why, ok = nil, value.why, true
  end
  outcome = ok and (value ~= nil or why == nil) and "ok" or "failed"
  if not ok then
    failure.report(value, "job failed", name)
  elseif value == nil and why ~= nil then
    host.log.write("warn", "job failed", { name = name, why = failure.words(why) })
  end
end

--- Answers "moonpool/job": { value }; { why } if the job failed; or { what, hint } if the name is wrong.
function job.run_now(call, name)
  local one = jobs[name]
  if not one then
    local hint = suggest.hint(tostring(name), jobs) or "moonpool list shows them"
    return { what = "there is no job '" .. tostring(name) .. "'", hint = hint, resultType = "complete" }
  end
  if one.timeout then host.call.set_deadline(call, one.timeout) end
  local ok, value, why = job.start(one, call)
  if not ok then return { why = failure.reason(value), resultType = "complete" } end
  if value == nil and why ~= nil then return { why = failure.words(why), resultType = "complete" } end
  local is_json, text = pcall(json.encode, value)
  return { value = is_json and value or nil, why = not is_json and "the returned value is not JSON: " .. tostring(text) or nil, resultType = "complete" }
end

return job
