-- What a client is told when an upstream fails: a JSON-RPC error whose data says whether the call ran. `outcome` is
-- "not_run" if the upstream certainly did not begin the request, else "unknown". The texts have no addresses, status
-- lines or bodies.
--   failure   { outcome, reason, status?, retry_after?, body?, … }, as host.upstream gives it

local characters = require "moonpool.runtime.characters"
local host = require "moonpool.host"
local rpc_error = require "moonpool.runtime.rpc_error"

local errors = {}

local NOT_RUN, UNKNOWN = "the call was not run", "whether the call ran is not known"

local function duration(seconds)
  if seconds < 1 then return ("%d ms"):format(math.floor(seconds * 1000 + 0.5)) end
  return ("%g s"):format(math.floor(seconds * 10 + 0.5) / 10)
end

-- For each reason: the words after "upstream 'NAME'".
local words = {
  refused = function(f) return "is not there" .. (f.retry_after and " (next try in " .. duration(f.retry_after) .. ")" or "") end,
  closed = function() return "went away before it answered" end,
  timeout = function(f, record) return "did not answer within " .. duration(f.after or record.timeout) end,
  total = function(_, record) return "did not end the call within " .. duration(record.total) end,
  too_large = function() return ("gave an answer over limits.upstreams.answer (%d bytes)"):format(host.limits.upstreams.answer) end,
  unreadable = function(f) return "gave an answer that cannot be read" .. (f.what and " (" .. f.what .. ")" or "") end,
  status = function(f) return "gave no answer to this call" .. (f.status and " (status " .. f.status .. ")" or "") end,
  busy = function(f)
    local what = f.what or f.why
    return "is busy" .. (what and " (" .. what .. ")" or "")
  end,
  barred = function() return "refuses the credential of this gateway: its operator must renew it" end,
  credential = function() return "cannot be called, as the authorization server gives no token at the moment" end,
  denied = function() return "cannot be called for this caller, whose token was refused" end,
  caller = function() return "needs a token of the caller: one that auth.jwt or auth.introspection of this gateway has verified" end,
  expired = function() return "needs a token of the caller, and the one with which this call began is not valid any more" end,
  stopped = function() return "was stopped by a change of the configuration" end,
  lost = function() return "lost the session of this call" end,
  task_lost = function() return "does not know the task of this call any more" end,
  task_cancelled = function() return "cancelled the task of this call" end,
  pending = function() return "could not be waited for while the client answered a question" end,
  asks = function(f) return f.what or "asked a question that cannot be put to this client" end,
  result_type = function() return "gave a result of a kind that this gateway does not know" end,
  questions = function() return "asked more than 256 questions during this call" end,
  loop = function() return "leads back to this gateway (a loop of upstreams)" end,
  revision = function() return "speaks no revision of MCP that this gateway knows" end,
}
words.down, words.open, words.address, words.unknown, words.cancelled = words.refused, words.refused, words.refused, words.refused, words.closed

--- The sentence about a failure, without "upstream 'NAME' ".
function errors.text(record, failure)
  local say = words[failure.reason] or words.status
  return say(failure, record)
end

-- Calls of one upstream that fail for one reason: this many lines of the log at once, then one in LOGGED_S seconds. The
-- line says how many had none; the numbers are exact in /metrics.
local LOGGED_S <const>, MOST_LOGGED <const> = 10, 10

local unlogged = {}        -- upstream and reason -> failed calls of this worker since the last line of the log

-- Logs why a call failed: clients and counters get the outcome, and only the log the cause.
local function log_failure(record, failure, outcome)
  local kind = record.name .. ":" .. tostring(failure.reason)
  if not host.log.wants "info" then return end
  if not host.store.take("upstream:failed:" .. kind, LOGGED_S, MOST_LOGGED) then
    unlogged[kind] = (unlogged[kind] or 0) + 1
    return
  end
  local why = failure.what or failure.why
  host.log.write("info", "upstream call failed", {
    upstream = record.name, reason = failure.reason, outcome = outcome, status = failure.status ~= 0 and failure.status or nil,
    why = type(why) == "string" and why ~= "" and characters.shown(why) or errors.text(record, failure), not_logged = unlogged[kind],
  })
  unlogged[kind] = nil
end

--- The JSON-RPC error for a failure of an upstream, whose cause is logged.
function errors.of(record, failure)
  local outcome = failure.outcome == "not_run" and "not_run" or "unknown"
  log_failure(record, failure, outcome)
  local message = ("upstream '%s' %s; %s"):format(record.name, errors.text(record, failure), outcome == "not_run" and NOT_RUN or UNKNOWN)
  local wait = failure.retry_after and math.max(1, math.ceil(failure.retry_after)) or nil
  return rpc_error.new("internal", message, { upstream = record.name, outcome = outcome, reason = failure.reason, retry_after = wait })
end

local function is_error(value)
  return type(value) == "table" and math.type(value.code) == "integer" and type(value.message) == "string"
end

--- The error for a client from `err`, the member `error` of an upstream's answer; `era`, the rules of the client's
--- revision.
function errors.forwarded(record, err, era)
  if not is_error(err) then return errors.of(record, { outcome = "unknown", reason = "unreadable" }) end
  local code, data = err.code, err.data
  if code == rpc_error.resource_not_found or (code == rpc_error.invalid_params and type(data) == "table" and data.uri ~= nil and era.resource_not_found) then
    code = rpc_error[era.resource_not_found or "invalid_params"]
  elseif rpc_error.is_undefined(code) then                                             -- a code that MCP does not define is hidden in `data` (X-34)
    data = { upstreamCode = code, data = data }
    code = rpc_error.internal
  elseif code == rpc_error.header_mismatch or code == rpc_error.unsupported_version then
    data = { upstreamCode = code, upstream = record.name }
    code = rpc_error.internal
  end
  return { code = code, message = err.message, data = data }
end

return errors
