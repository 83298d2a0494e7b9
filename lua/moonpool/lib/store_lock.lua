-- store.lock: runs a function while its call holds a lock, which is an entry of the store that expires. The value of the
-- entry is the lock's fence, a number above those of all earlier locks, so no two holders have the same value: who
-- prolongs the lock or gives it back does it only if the value is still its own.

local host = require "moonpool.host"
local copied = require "moonpool.runtime.copied"
local frozen = require "moonpool.runtime.frozen"
local lease = require "moonpool.lib.lease"
local problem = require "moonpool.runtime.diagnostic"
local suggest = require "moonpool.runtime.suggest"

local store_lock = {}

local TTL <const>, LEAST <const>, MOST <const> = 30, 2, 3600
local PAUSE <const> = 0.05         -- seconds between two tries to take a lock, half of it to one and a half

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

--- Runs f(lock) while the call holds the lock `name`, whose key in the store is `key`. Returns the results of `f`; or nil,
--- and "locked", "lost", "full", "unavailable" or "unknown". `word` is the name of the library.
function store_lock.run(word, name, key, options, f)
  local what = word .. ".lock"
  local ttl, wait = read(options, what)
  if type(f) ~= "function" then problem.raise(3, what .. " takes a function as its third argument, not a " .. type(f), EXAMPLE) end
  local fence, sent = take(key, ttl, wait)
  if not fence then return nil, sent end
  local text = tostring(fence)
  local lock = frozen.new(kind, { key = name, fence = fence }, { key = key, fence = fence, word = word })
  return lease.hold({
    ttl = ttl, confirmed = sent,
    renew = function() return host.store.cas(key, text, text, ttl) end,
    free = function() return host.store.cas(key, text, false) end,
  }, what, f, lock)
end

return store_lock
