-- What policies count, in the server of `cluster`: a bucket or a quota is one for all gateways.
--
-- Keys in the server, each behind mp:NAME:
--   b:KEY          a bucket: when it is full, in microseconds since 1970; it expires then
--   q:PERIOD KEY   the calls of a quota in a period; it expires an hour after it
--
-- While the server does not answer, a policy does as its option `away` says, or cluster.when_redis_is_down: "refuse";
-- "allow"; or "local": this gateway counts alone, and admits its share of what all of them may.

local host = require "moonpool.host"
local cluster_operation = require "moonpool.lib.cluster_operation"
local server = require "moonpool.lib.cluster_server"

local config <const> = host.config.cluster
local PREFIX <const> = cluster_operation.PREFIX
local MAX_INTERVAL_S <const> = 30 * 86400      -- as host.store.take has it
local KEPT_MS <const> = 3600 * 1000

-- 0: a token was taken; else the microseconds until the next one. The interval and the size of the bucket are those of the
-- caller, so two versions of a policy share one. A bucket cannot be emptier than empty: the clock may have been set back.
local TAKE <const> = [[
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local room = interval * burst
local full = tonumber(redis.call("GET", KEYS[1]) or now)
full = math.min(math.max(full, now), now + room)
local wait = full + interval - room - now
if wait > 0 then return string.format("%.0f", wait) end
local left = math.ceil((full + interval - now) / 1000)
redis.call("SET", KEYS[1], string.format("%.0f", full + interval), "PX", string.format("%.0f", left))
return "0"
]]

-- 1: the call is counted; 0: there is no room for it.
local COUNT <const> = cluster_operation.CLOCK .. [[
if tonumber(redis.call("GET", KEYS[1]) or 0) >= tonumber(ARGV[3]) then return { said, 0 } end
redis.call("INCRBY", KEYS[1], 1)
redis.call("PEXPIREAT", KEYS[1], ARGV[4])
return { said, 1 }
]]

-- The part of a key behind its prefix "l:" or "q:".
local function name_of(key) return key:gsub("^visitor ", "", 1):sub(3) end

--- Returns functions like those of `here`, which count in this process, that count for all gateways.
return function(here)
  local counts = { whys = {
    full = "the server of cluster has no memory left",
    unavailable = "the server of cluster does not answer",
    unknown = "the server of cluster did not answer: the call may be counted",
  } }

  function counts.take(key, interval, burst, away)
    local reply, why = cluster_operation.ask("limit", { "EVAL", TAKE, "1", PREFIX .. "b:" .. name_of(key), ("%d"):format(math.ceil(interval * 1e6)),
      ("%d"):format(burst) }, nil, server.brief)
    if reply then return reply == "0", tonumber(reply) / 1e6 end
    away = away or config.limits
    if away == "allow" then return true end
    if away == "refuse" then return nil, why end
    local share = server.nodes()
    return here.take(key, math.min(interval * share, MAX_INTERVAL_S), math.max(1, burst // share))
  end

  function counts.count(period_at, most, away)
    local rest
    local done, why = cluster_operation.timed("quota", COUNT, function(now)
      local key, begins, ends = period_at(now // 1000)
      rest = ends - now // 1000
      return begins * 1000, ends * 1000, "q:" .. name_of(key), { ("%d"):format(most), ("%d"):format(ends * 1000 + KEPT_MS) }
    end)
    if done then return done == 1, rest end
    away = away or config.quotas
    if away == "allow" then return true end
    if away == "refuse" then return nil, why end
    return here.count(period_at, most // server.nodes())
  end

  return counts
end
