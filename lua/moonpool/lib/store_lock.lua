-- store.lock: runs a function while its call holds a lock, which is an entry of the store that expires. The value of the
-- entry is the lock's fence, a number above those of all earlier locks, so no two holders have the same value: who
-- prolongs the lock or gives it back does it only if the value is still its own.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local failure = require "moonpool.runtime.outcome"
local frozen = require "moonpool.runtime.frozen"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"

local store_lock = {}

local TTL <const>, LEAST <const>, MOST <const> = 30, 2, 3600
local PAUSE <const> = 0.05         -- seconds between two tries to take a lock, half of it to one and a half
local RETRY <const> = 0.25         -- seconds until a renewal is sent again that the store did not answer
local MARGIN <const> = 1           -- seconds before the end of its ttl at which a lock that was not renewed is lost

local OPTIONS <const> = { "ttl", "wait" }
local EXAMPLE <const> = "as in store.lock(key, { ttl = 30, wait = 5 }, function(lock) … end)"

local kind = { name = "moonpool.lock", what = "a lock" }

--- The key and the fence of a lock that `word`.lock gave to its function.
function store_lock.content(lock, word, what)
  local content = frozen.is(lock, kind) and frozen.content(lock)
  if not content or content.word ~= word then
    problem.raise(4, what .. ": 'lock' must be what " .. word .. ".lock gives its function", EXAMPLE)
  end
  return content.key, content.fence
end

local function number(value, name, least, what)
  if type(value) ~= "number" or not (value >= least and value <= MOST) then
    problem.raise(4, ("%s: '%s' must be %d to %d seconds"):format(what, name, least, MOST))
  end
  return value
end

local function read(options, what)
  if options ~= nil and type(options) ~= "table" then
    problem.raise(4, what .. ": options must be a table", EXAMPLE)
  end
  options = copied(options or {})
  for name in next, options do
    if name ~= "ttl" and name ~= "wait" then
      problem.raise(4, what .. ": unknown option '" .. tostring(name) .. "'", suggest.listed(tostring(name), OPTIONS, "the options"))
    end
  end
  return number(options.ttl or TTL, "ttl", LEAST, what), number(options.wait or 0, "wait", 0, what)
end

-- Takes the lock. Returns its fence, and when its ttl began at the earliest; or nil, and "locked", "full", "unavailable"
-- or "unknown": then nobody can have the lock until its ttl is over.
local function take(key, ttl, wait)
  local ends = host.time.now() + wait
  while true do
    local sent = host.time.boot()
    local fence, why = host.store.lock(key, ttl)
    if fence then return fence, sent end
    local left = ends - host.time.now()
    if fence == nil or left <= 0 then return nil, why or "locked" end
    host.time.sleep(math.min(left, PAUSE * (0.5 + math.random())))
  end
end

-- When the lock is lost unless it is renewed, by the clock that runs on while the machine is suspended.
local function lost_at(held) return held.confirmed + held.ttl - MARGIN end

-- Returns when the lock is lost, however long a renewal takes.
local function watch(held)
  local left = lost_at(held) - host.time.boot()
  while left > 0 do
    host.time.sleep(left, true)
    left = lost_at(held) - host.time.boot()
  end
end

-- Renews the lock. Returns once it is lost.
local function renew(held)
  local every = held.ttl / 3
  local at = held.confirmed + every
  while true do
    host.time.sleep(math.max(0, at - host.time.boot()), true)
    local sent = host.time.boot()
    local done = sent < lost_at(held) and host.store.cas(held.key, held.text, held.text, held.ttl)
    if done == false then return end
    if done then held.confirmed = sent end
    at = sent + (done and every or RETRY)
  end
end

-- Gives the lock back. True if it was held until now.
local function give_back(held)
  if held.is_back then return false end
  held.is_back = true
  local done = host.store.cas(held.key, held.text, false)
  return done or done == nil and host.time.boot() < lost_at(held)
end

local holder = { __close = give_back }

--- Runs f(lock) while the call holds the lock `name`, whose key in the store is `key`. Returns the results of `f`; or nil,
--- and "locked", "lost", "full", "unavailable" or "unknown". `word` is the name of the library.
function store_lock.run(word, name, key, options, f)
  local what = word .. ".lock"
  local ttl, wait = read(options, what)
  if type(f) ~= "function" then problem.raise(3, what .. " takes a function as its third argument, not a " .. type(f), EXAMPLE) end
  local fence, sent = take(key, ttl, wait)
  if not fence then return nil, sent end
  local held <close> = setmetatable({ key = key, text = tostring(fence), ttl = ttl, confirmed = sent }, holder)
  local lock = frozen.new(kind, { key = name, fence = fence }, { key = key, fence = fence, word = word })
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
      results = table.pack(xpcall(f, failure.handler, lock))
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

return store_lock
