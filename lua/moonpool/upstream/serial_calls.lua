-- Turns of calls on a channel that several calls of stateless clients share. An older upstream over stdio, HTTP+SSE or
-- a GET stream does not say which call a question belongs to: with several running, the gateway guesses. Calls run at
-- once until a first such doubt; from then on those of the upstream take turns, so that a question has one call that it
-- can belong to. A call whose client is being asked has no turn, and needs none to go on.

local errors = require "moonpool.upstream.errors"
local failure = require "moonpool.runtime.outcome"
local host = require "moonpool.host"

local serial_calls = {}

-- seconds for which the store remembers that a question could belong to several calls, and the number of calls of a
-- channel
local KEPT_S <const> = 86400

local function doubt_key(record) return ("upstream:doubt:%s:%s"):format(host.upstream.instance, record.name) end
local function count_key(record, key) return ("callers:asking:%s:%s:%s"):format(host.upstream.instance, record.name, key) end

local counted = { __close = function(it) host.store.incr(it.key, -1, KEPT_S) end }

--- Counts a call among those that run on a channel, until the value is closed.
function serial_calls.count(record, key)
  local one = setmetatable({ key = count_key(record, key) }, counted)
  return host.store.incr(one.key, 1, KEPT_S) and one or nil
end

--- Waits for the call's turn on a channel, if calls of the upstream take turns: returns the turn, which ends when it is
--- closed; or nil.
function serial_calls.take(record, key)
  if not host.store.get(doubt_key(record)) then return nil end
  local turn = host.semaphore.take("upstream:" .. record.name .. ":" .. key, 1)
  if not turn then failure.refuse(errors.of(record, { outcome = "not_run", reason = "busy" })) end
  return turn
end

--- A question came on a channel, and its call is not known.
function serial_calls.doubt(record, key)
  if (tonumber(host.store.get(count_key(record, key)) or "") or 0) < 2 then return end
  if host.store.add(doubt_key(record), "", KEPT_S) then
    host.log.write("info", "calls take turns", { upstream = record.name, why = "a question could belong to several calls" })
  end
end

return serial_calls