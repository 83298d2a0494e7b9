-- Which gateway of the cluster runs a job: each slot of its schedule, an instant, is run once. Whoever claims a slot holds
-- the job for 15 s, and prolongs that while it runs; it is free then, whatever became of its holder. A slot that no gateway
-- has claimed in a minute or two is not made up.
--
-- Key in the server, behind mp:NAME:
--   j:JOB   a hash: slot, the last that was claimed; lease, until when it is held: both in ms since 1970; fence: that of its
--           last holder, a number above those of all earlier ones

local host = require "moonpool.host"
local cluster_operation = require "moonpool.lib.cluster_operation"
local cron = require "moonpool.lib.cron"

local boot <const> = host.time.boot
local TTL_S <const> = 15
local LATE_MS <const> = 60 * 1000     -- how late a slot may begin
local KEPT_S <const> = 26 * 3600      -- seconds for which this gateway remembers the last slot of a job

-- A claim gives the fence; "past" and the last slot if the slot is not after it; or "held". The others give 1, or 0 if the
-- job is not held with this fence any more. No lease ends later than one from now would, and a slot a day ahead of now is
-- forgotten: the server's clock was set back.
local RUN <const> = cluster_operation.CLOCK .. ([[
local op, which = ARGV[3], tonumber(ARGV[4])
local row = redis.call("HMGET", KEYS[1], "slot", "lease", "fence")
local last, lease, fence = tonumber(row[1] or 0), tonumber(row[2] or 0), tonumber(row[3] or 0)
local function put(...) redis.call("HSET", KEYS[1], ...) end
if lease > now + TTL then
  lease = now + TTL
  put("lease", string.format("%.0f", lease))
end
if op == "claim" then
  if last > now + 86400000 then last = 0 end
  if which <= last then return { said, "past", string.format("%.0f", last) } end
  if lease > now then return { said, "held" } end
  fence = string.format("%.0f", math.max(us, fence + 1))
  put("slot", ARGV[4], "lease", string.format("%.0f", now + TTL), "fence", fence)
  return { said, fence }
end
if which ~= fence or lease <= now then return { said, 0 } end
put("lease", op == "renew" and string.format("%.0f", now + TTL) or "0")
return { said, 1 }
]]):gsub("TTL", tostring(TTL_S * 1000))

local cluster_jobs = {}

-- The first slot of a job that is due at `now` and after `last`, in ms since 1970; or nil.
local function slot_of(one, now, last)
  if one.times then
    for at = now - 60000, now, 60000 do
      local slot = cron.slot(one.times, at // 1000)
      if slot and slot * 1000 > last and at - slot * 1000 < LATE_MS then return slot * 1000 end
    end
    return nil
  end
  local slot = now - now % (one.every * 1000 // 1 | 0)
  return slot > last and now - slot < LATE_MS and slot or nil
end

--- Seconds between two looks whether a job is due.
function cluster_jobs.period(one) return one.times and 5 or math.min(math.max(one.every / 10, 0.05), 1) end

--- When the job is due after `now`, in seconds since 1970.
function cluster_jobs.next(one, now)
  if one.times then return cron.next(one.times, now) end
  return math.ceil((now // one.every + 1) * one.every)
end

local function prolong(one, op, fence)
  local done = cluster_operation.timed("job", RUN, function() return 0, math.huge, "j:" .. one.name, { op, fence } end)
  if done then return done == 1 end
  return nil
end

--- Claims the run of a job that is due: what lease.hold takes, and its fence; or nil.
function cluster_jobs.claim(one)
  if select(3, host.nodes.uid()) then return nil end     -- this gateway leaves
  local known = "job:slot:" .. one.name
  local last, slot, sent = tonumber(host.store.get(known) or 0), nil, nil
  local fence, past = cluster_operation.timed("job", RUN, function(now)
    slot = slot_of(one, now, last < now + KEPT_S * 1000 and last or 0)
    sent = boot()
    if slot then return slot, math.huge, "j:" .. one.name, { "claim", ("%d"):format(slot) } end
  end)
  if not fence or fence == "held" then return nil end
  host.store.set(known, past or ("%d"):format(slot), KEPT_S)
  if past then return nil end
  return {
    ttl = TTL_S, confirmed = sent,
    renew = function() return prolong(one, "renew", fence) end,
    free = function() return prolong(one, "free", fence) end,
  }, math.tointeger(tonumber(fence))
end

return cluster_jobs
