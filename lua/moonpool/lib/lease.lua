-- What a function needs to have while it runs, and what it has for a while only: a lock of store.lock, or the run of a job
-- of several gateways. It is prolonged meanwhile; where that is not confirmed in time, the function is cancelled before
-- others can have it.
--   held   { ttl = seconds, confirmed = when its ttl began at the earliest, by host.time.boot(), renew =, free = }
--   held.renew(), held.free()   prolong it, and give it back: true; false: others may have it; nil: nobody knows
-- The clock is the one that runs on while the machine is suspended.

local host = require "moonpool.host"
local failure = require "moonpool.runtime.outcome"

local RETRY <const> = 0.25         -- seconds until a renewal is sent again that was not confirmed
local MARGIN <const> = 1           -- seconds before the end of its ttl at which what was not renewed is lost

local lease = {}

local function lost_at(held) return held.confirmed + held.ttl - MARGIN end

-- Returns when it is lost, however long a renewal takes.
local function watch(held)
  local left = lost_at(held) - host.time.boot()
  while left > 0 do
    host.time.sleep(left, true)
    left = lost_at(held) - host.time.boot()
  end
end

-- Renews it. Returns once it is lost.
local function renew(held)
  local every = held.ttl / 3
  local at = held.confirmed + every
  while true do
    host.time.sleep(math.max(0, at - host.time.boot()), true)
    local sent = host.time.boot()
    local done = sent < lost_at(held) and held.renew()
    if done == false then return end
    if done then held.confirmed = sent end
    at = sent + (done and every or RETRY)
  end
end

-- Gives it back. True if it was held until now.
local function give_back(held)
  if held.is_back then return false end
  held.is_back = true
  local done = held.free()
  return done or done == nil and host.time.boot() < lost_at(held)
end

local holder = { __close = give_back }

--- The results of f(...), which runs while `held` is held, and is given back then; or nil and "lost". `what` names it in
--- messages.
function lease.hold(held, what, f, ...)
  local args, _ <close> = table.pack(...), setmetatable(held, holder)
  local results, is_lost
  local function losing(await)
    return function()
      await(held)
      is_lost = true
      return false
    end
  end
  -- The first that ends cancels the others, and its result is false for that.
  host.task.parallel({
    function()
      results = table.pack(xpcall(f, failure.handler, table.unpack(args, 1, args.n)))
      return false
    end,
    losing(renew),
    losing(watch),
  }, what)
  local was_held = give_back(held)
  if results and not results[1] then error(results[2], 0) end
  if is_lost or not was_held then
    host.store.lost()
    return nil, "lost"
  end
  if not results then error("the function of " .. what .. " did not end", 0) end
  return table.unpack(results, 2, results.n)
end

return lease
