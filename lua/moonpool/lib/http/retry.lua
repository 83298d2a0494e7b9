-- The option `retry` of `http`. Only requests that are safe to repeat are sent again, after growing pauses or the
-- server's Retry-After, and within the request's timeout.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local time = require "moonpool.lib.time"

local retry = {}

local FIRST_PAUSE_S, MAX_PAUSE_S = 0.2, 10 -- pauses between tries, in seconds

-- Idempotent methods (RFC 9110, 9.2.2): requests with them may reach a server twice.
local idempotent = { GET = true, HEAD = true, OPTIONS = true, PUT = true, DELETE = true }

-- Safe methods (RFC 9110, 9.2.1): requests with them change nothing.
local safe = { GET = true, HEAD = true, OPTIONS = true }

-- Statuses of a server, or of a proxy in front of it, that is temporarily unavailable.
local passing = { [429] = true, [502] = true, [503] = true, [504] = true }

local months = { Jan = 1, Feb = 2, Mar = 3, Apr = 4, May = 5, Jun = 6, Jul = 7, Aug = 8, Sep = 9, Oct = 10, Nov = 11, Dec = 12 }

-- True if the script says that the request may reach the server twice.
local function is_allowed(plan)
  if plan.retry_unsafe then return true end
  for _, header in ipairs(plan.headers) do
    if header[1] == "idempotency-key" then return true end
  end
  return false
end

--- True if the option `retry` may repeat the request.
function retry.may_repeat(plan) return idempotent[plan.method] or is_allowed(plan) end

--- True if the request may be sent again, without the option `retry`, when a kept connection closes before its answer.
function retry.may_resend(plan) return safe[plan.method] or is_allowed(plan) end

-- Parses Retry-After, a number or a date, to seconds from now; nil if it is neither.
local function seconds_of(text)
  if text:find "^%d+$" and #text <= 9 then return tonumber(text) end
  local day, month, year, clock = text:match "^%a+, (%d%d) (%a%a%a) (%d%d%d%d) (%d%d:%d%d:%d%d) GMT$"
  local at = months[month] and time.parse(("%s-%02d-%sT%sZ"):format(year, months[month], day, clock))
  return at and math.max(0, at - host.time.clock())
end

-- Seconds until the next try; nil if there is no further try.
local function pause(plan, tried, answer, kind)
  if answer and not passing[answer.status] or not answer and kind ~= "unsent" and kind ~= "unanswered" then return nil end
  if kind ~= "unsent" and not retry.may_repeat(plan) then return nil end
  local said = answer and answer.headers["retry-after"]
  local seconds = said and seconds_of(said)
  return seconds or math.min(MAX_PAUSE_S, FIRST_PAUSE_S * 2 ^ tried) * (0.5 + math.random() / 2)
end

--- Runs `attempt(plan)` until it succeeds or may not be repeated, and returns the results of the last try: an answer;
--- or nil, why, kind.
--- `deadline` is in seconds of host.time.now(). The attempt may change its plan.
function retry.run(plan, deadline, attempt)
  for tried = 0, plan.retry do
    local answer, why, kind = attempt(copied(plan))
    local seconds = tried < plan.retry and pause(plan, tried, answer, kind)
    if not seconds or host.time.now() + seconds >= deadline then return answer, why end
    if answer and answer.close then answer:close() end
    host.time.sleep(seconds)
  end
end

return retry
