-- Operations in the server of `cluster`, which several gateways share: a command, or a script that compares or counts as
-- one step. All keys begin with mp:NAME:. What has no answer is "unavailable" or "unknown", as cluster_server.lua says;
-- what only reads is "unavailable" in both cases.

local digest = require "moonpool.lib.digest"
local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"
local server = require "moonpool.lib.cluster_server"

local now <const>, boot <const> = host.time.now, host.time.boot     -- taken while this file loads: later, a recorder of calls replaces them
local SAY_S <const> = 60
local SLACK_MS <const> = 1000 + host.config.cluster.timeout * 1000 // 1 | 0

local operation = {}

operation.PREFIX = "mp:" .. host.config.cluster.name .. ":"

-- By the kind of a server's error: why nothing was done.
local whys <const> = {
  OOM = "full", READONLY = "unavailable", LOADING = "unavailable", MASTERDOWN = "unavailable", MISCONF = "unavailable", NOREPLICAS = "unavailable",
  NOAUTH = "unavailable", WRONGTYPE = "unavailable", BUSY = "unavailable", CLUSTERDOWN = "unavailable", MOVED = "unavailable",
}

local reads <const> = { get = true, list = true }

local series, said_at, hashes = {}, -math.huge, {}

local function measure(name, outcome, began)
  local key = name .. " " .. outcome
  series[key] = series[key] or host.metrics.series("cluster", name, outcome)
  host.metrics.observe(series[key], now() - began)
end

-- Why an operation failed with this error of the server.
local function why_of(text)
  local why, kind
  for word in text:gmatch "%u%u%u+" do
    if whys[word] and not why then why, kind = whys[word], word end
  end
  if kind == "READONLY" then server.renew() end
  if now() - said_at >= SAY_S then
    said_at = now()
    host.log.write("warn", "redis command refused", { server = server.place, why = kind or text:match "^%u+" or "an error" })
  end
  return why or text:find("script", 1, true) and "unknown" or "unavailable"
end

--- As cluster_server.send, of a command; or of a script behind its name "EVAL", with the number of its keys, its keys and
--- arguments, which the server gets only if it does not have it.
function operation.send(words, ends, is_sync, pace)
  local script = words[1] == "EVAL" and words[2]
  if script then
    hashes[script] = hashes[script] or digest.sha1(script)
    words[1], words[2] = "EVALSHA", hashes[script]
  end
  local done, reply, reason = server.send(words, ends, is_sync, pace)
  if script and reason == "error" and reply:find("NOSCRIPT", 1, true) then
    words[1], words[2] = "EVAL", script
    done, reply, reason = server.send(words, ends, is_sync, pace)
  end
  return done, reply, reason
end

--- The reply to an operation; or nil and why. `name` is for metrics. `words` are those of operation.send.
--- `is_sync`: a replica has to have what it changed, too. `pace`: of cluster_server.
function operation.ask(name, words, is_sync, pace)
  if not host.task.current() then
    problem.raise(1, "the store is in a server (cluster), which cannot be asked while scripts load",
      "do it in a job, or when the first call needs it; store.near is in this process")
  end
  local began, ends = now(), server.deadline(pace)
  local done, reply, reason
  if not server.is_ready(ends, pace) then
    reason = "unavailable"
  else
    done, reply, reason = operation.send(words, ends, is_sync, pace)
  end
  if not done then
    if reason == "error" then reason = why_of(reply) end
    if reason == "unknown" and reads[name] then reason = "unavailable" end
  elseif is_sync and not reason and reply ~= 0 then
    done, reason = nil, "not replicated"
  end
  measure(name, done and "ok" or reason, began)
  if done then return reply end
  return nil, reason
end

-- -- by the server's clock ---------------------------------------------------------------------------------------------

-- The server's clock less this machine's steady one, in seconds, as its last reply had it: behind by that reply's way here
-- at most, unless the clock of one of them was changed. Until the first reply: this machine's clock.
local ahead = host.time.clock() - boot()

--- What a script begins with that is asked for by operation.timed: it has `us` and `now`, the server's time since 1970 in
--- microseconds and milliseconds, and `said`, with which each of its replies begins.
operation.CLOCK = [[
local time = redis.call("TIME")
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local said = string.format("%.0f", now)
if now < tonumber(ARGV[1]) or now >= tonumber(ARGV[2]) then return { said } end
]]

--- Runs a script at a time of the server that its arguments fit: where it was sent and not answered, it does nothing later.
--- plan(now) gives, for a time in ms since 1970, the first and the last ms in which it may run, its key, and its arguments
--- from ARGV[3] on; or nil: there is nothing to do. It is called again if the server's clock is not as it was. Returns the
--- reply's items behind `said`; or nil and why, without why if there was nothing to do.
function operation.timed(name, script, plan)
  for _ = 1, 2 do
    local at = (boot() + ahead) * 1000 // 1 | 0
    local from, till, key, words = plan(at)
    if not from then return nil end
    local reply, why = operation.ask(name, { "EVAL", script, "1", operation.PREFIX .. key, ("%d"):format(from), ("%d"):format(math.min(till, at + SLACK_MS)),
      table.unpack(words) })
    if not reply then return nil, why end
    ahead = tonumber(reply[1]) / 1000 - boot()
    if #reply > 1 then return table.unpack(reply, 2) end
  end
  return nil, "unavailable"
end

return operation
