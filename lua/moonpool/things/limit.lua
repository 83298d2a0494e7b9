-- limit { … } and quota { … }: policies that count calls. A limit is a token bucket, a quota a number of calls per
-- period; both count for the whole process, or with `cluster` for all its gateways.

local copied = require "moonpool.runtime.copied"
local errors = require "moonpool.runtime.rpc_error"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"
local policy = require "moonpool.things.policy"
local principal = require "moonpool.access.principal"
local problem = require "moonpool.runtime.diagnostic"
local sorted = require "moonpool.runtime.sorted_keys"
local suggest = require "moonpool.runtime.suggest"

local limit = {}

local MAX_CALLS = 1000000
local MAX_PERIOD_S = 30 * 86400
local aways = { ["local"] = true, refuse = true, allow = true }
local by_words = { principal = true, tool = true, address = true, all = true }
local periods = { hour = "!%Y-%m-%dT%H", day = "!%Y-%m-%d", month = "!%Y-%m" }
local shared = { tools = true, resources = true, prompts = true, order = true, by = true, answer = true, away = true }

-- Checks the options that limit and quota share. Returns the parts of the option `by`: a list of words and functions.
local function check(word, spec, own, form)
  if type(spec) ~= "table" then problem.raise(3, word .. " needs a table", form) end
  for option in pairs(spec) do
    if not shared[option] and not own[option] then
      problem.raise(3, word .. " has no option '" .. tostring(option) .. "'", suggest.listed(option, sorted(own, shared), "options"))
    end
  end
  if spec.answer ~= nil and spec.answer ~= "error" and spec.answer ~= "status" then
    problem.raise(3, word .. ": 'answer' must be \"error\", which a model reads, or \"status\", HTTP's 429", form)
  end
  if spec.away ~= nil and not aways[spec.away] then
    problem.raise(3, word .. ": 'away' must be \"local\", \"refuse\" or \"allow\": what it does while the server of 'cluster' does not answer", form)
  end
  local by = spec.by
  local list = type(by) == "table" and by or { by == nil and "principal" or by }
  for _, item in ipairs(list) do
    if type(item) ~= "function" and not by_words[item] then
      problem.raise(3, word .. ": 'by' must be \"principal\", \"tool\", \"address\", \"all\", a function, or a list of them", form)
    end
  end
  return list
end

-- Addresses of one IPv6 network of 64 bits count as one client.
local function address_of(call) return host.http.counted(call.address or "") end

local readers = {
  -- a caller without a name is identified by its address
  principal = function(call)
    local who = call.principal
    return principal.is_named(who) and principal.key(who) or "address " .. address_of(call)
  end,
  tool = function(call) return call.kind .. " " .. call.name end,
  address = address_of,
  all = function() return "" end,
}

local MAX_VALUE_BYTES = 128      -- a longer value is represented by its hash

local function shortened(value) return #value <= MAX_VALUE_BYTES and value or "hash " .. host.digest.sum("sha256", value) end

-- The key of a counter. Where a caller can choose among any number of counters, by its address or by what it sends, the
-- key belongs to the store's rooms for visitors: what is counted there takes no room from counters of principals.
local function key_of(prefix, row, by, call)
  local parts, is_visitor = { prefix, row.name }, false
  for i, item in ipairs(by) do
    local read = readers[item] or item
    local value = read(call)
    if type(value) ~= "string" and type(value) ~= "number" then
      error("'by' of " .. row.name .. " gave a " .. type(value) .. ", not a string", 0)
    end
    is_visitor = is_visitor or item == "address" or type(item) == "function" or item == "principal" and not principal.is_named(call.principal)
    parts[i + 2] = shortened(tostring(value))
  end
  if is_visitor then parts[1] = "visitor " .. prefix end
  return table.concat(parts, "\0")
end

local function in_words(seconds)
  seconds = math.max(1, math.ceil(seconds))
  if seconds < 120 then return seconds == 1 and "a second" or seconds .. " seconds" end
  if seconds < 7200 then return math.ceil(seconds / 60) .. " minutes" end
  return math.ceil(seconds / 3600) .. " hours"
end

-- Refuses a call: a tool's result tells the model; other calls get a JSON-RPC error, over HTTP with status 429.
local function refuse(call, answer, why, seconds)
  host.call.count_limited()
  if call.kind == "tool" and answer ~= "status" then failure.fail(why) end
  failure.refuse(errors.busy(why, math.max(1, math.ceil(seconds))))
end

local AGAIN_S = 1      -- seconds after which a call that could not be counted may be tried again

local SAY_S = 60       -- each policy has one line of the log in such a time

-- Counts in the store of this gateway. take(key, interval, burst, away): true; false and the seconds until the next token;
-- or nil and why. count(period_at, most, away): true, or false, and the seconds until the period ends; or nil and why.
-- period_at(now) gives the key of the period at a time in seconds since 1970, and when it begins and ends.
local counts = { take = host.store.take, whys = {
  full = "the store has no room for its counter: raise store.entries or store.bytes",
  unavailable = "the process that has the store does not answer",
  unknown = "the process that has the store did not answer: the call may be counted",
} }

function counts.count(period_at, most)
  local now = os.time()
  local key, _, ends = period_at(now)
  local used, why = host.store.incr(key, 1, ends - now + 3600)
  if not used then return nil, why end
  if used > most then host.store.incr(key, -1) end
  return used <= most, ends - now
end

if host.script.is_clustered then counts = require "moonpool.lib.cluster_counts" (counts) end

-- Logs that a call could not be counted: it is refused then.
local function not_counted(row, why)
  local minute = os.time() // SAY_S
  if row.said_at == minute then return end
  row.said_at = minute
  host.log.write("error", "limit not counted", { policy = row.name, why = counts.whys[why] or why })
end

-- The policy that calls take(row, call): `take` returns nil if the call may go on, else the reason and the seconds
-- until it may.
local function made(spec, take, says)
  local function handler(call, next, row)
    if call.phase == "run" then return next() end                 -- the call was counted in the phase "prepare"
    local why, seconds = take(row, call)
    if not why then return next() end
    refuse(call, spec.answer, why .. ": try again in " .. in_words(seconds), seconds)
  end
  return policy.made({ handler, tools = spec.tools, resources = spec.resources, prompts = spec.prompts, order = spec.order }, says)
end

local limit_form = "as in limit { tools = { \"search_*\" }, rate = 10, per = 1 * minutes }"

--- limit { rate =, per = seconds, burst =, by =, answer = "error" | "status", tools =, … }
function limit.rate(spec)
  local form = limit_form
  spec = copied(spec)
  local by = check("limit", spec, { rate = true, per = true, burst = true }, form)
  local rate, per, burst, away = spec.rate, spec.per == nil and 1 or spec.per, spec.burst, spec.away
  if type(rate) ~= "number" or not (rate > 0 and rate <= MAX_CALLS) then problem.raise(2, "limit needs 'rate': a number of calls above 0", form) end
  if type(per) ~= "number" or not (per > 0 and per <= MAX_PERIOD_S) then problem.raise(2, "limit: 'per' must be a time above 0 and at most 30 days", form) end
  if burst == nil then burst = math.max(1, rate // 1 | 0) end
  if math.type(burst) ~= "integer" or burst < 1 or burst > MAX_CALLS then problem.raise(2, "limit: 'burst' must be a whole number from 1", form) end
  local interval = per / rate
  if interval > MAX_PERIOD_S then problem.raise(2, "limit: the rate is less than one call in 30 days", form) end
  return made(spec, function(row, call)
    local taken, wait = counts.take(key_of("l:", row, by, call), interval, burst, away)
    if taken then return nil end
    if taken == nil then
      not_counted(row, wait)
      wait = AGAIN_S
    end
    return "too many calls of '" .. call.name .. "'", wait
  end, rate .. " calls in " .. per .. " s")
end

-- When the period that has `now` begins and ends.
local function ends_of(period, now)
  if period == "hour" then return now // 3600 * 3600, (now // 3600 + 1) * 3600 end
  local day = now // 86400 * 86400
  if period == "day" then return day, day + 86400 end
  local at = os.date("!*t", now)
  local first = os.time { year = at.year, month = at.month + 1, day = 1, hour = 12 } - os.time { year = at.year, month = at.month, day = 1, hour = 12 }
  local begins = day - (at.day - 1) * 86400
  return begins, begins + (first + 43200) // 86400 * 86400
end

local quota_form = "as in quota { tools = { \"translate\" }, most = 1000, per = \"day\" }"

--- quota { most =, per = "hour" | "day" | "month", by =, answer =, tools =, … }: periods begin and end in UTC.
function limit.quota(spec)
  local form = quota_form
  spec = copied(spec)
  local by = check("quota", spec, { most = true, per = true }, form)
  local most, per, away = spec.most, spec.per == nil and "day" or spec.per, spec.away
  if math.type(most) ~= "integer" or most < 0 then problem.raise(2, "quota needs 'most': a whole number of calls", form) end
  if not periods[per] then problem.raise(2, "quota: 'per' must be \"hour\", \"day\" or \"month\"", form) end
  return made(spec, function(row, call)
    local taken, rest = counts.count(function(now) return key_of("q:" .. os.date(periods[per], now), row, by, call), ends_of(per, now) end, most, away)
    if taken then return nil end
    if taken == nil then
      not_counted(row, rest)
      return "the quota of '" .. call.name .. "' cannot be counted", AGAIN_S
    end
    return "the quota of " .. most .. (most == 1 and " call" or " calls") .. " of '" .. call.name .. "' in one " .. per .. " is used up", rest
  end, most .. " calls in one " .. per)
end

return limit
