-- The clocks of scripts in specs: the real ones, or a fake one that fake.time sets. Under a fake clock these follow it:
-- sleep, time, os.time and os.date, the ttl of store entries, the buckets of limit and quota, expiry of tokens.
-- Specs have one VM, so the times of store entries and buckets are kept here and not in the store. Load this module
-- before modules that keep references to the functions that it replaces.

local host = require "moonpool.host"

local clock = {}

local real = {
  time = os.time, date = os.date, sleep = host.time.sleep, clock = host.time.clock, now = host.time.now,
  set = host.store.set, add = host.store.add, get = host.store.get, keys = host.store.keys, incr = host.store.incr, delete = host.store.delete,
  cas = host.store.cas, set_locked = host.store.set_locked,
}

local at            -- seconds since 1970; nil: the real clock
local steady        -- the monotonic clock while `at` is set

-- -- time --------------------------------------------------------------------------------------------------------------

function os.time(when)                                                          -- luacheck: ignore 122
  if when ~= nil or not at then return real.time(when) end
  return math.floor(at)
end

function os.date(format, when)                                                  -- luacheck: ignore 122
  return real.date(format or "%c", when or (at and math.floor(at) or real.time()))
end

function host.time.clock() return at or real.clock() end
function host.time.now() return at and steady or real.now() end

local sleepers = {}     -- one per sleep under a fake clock -> the time at which it ends

local function is_first(one)
  for other, when in pairs(sleepers) do
    if when < sleepers[one] and other ~= one then return false end
  end
  return true
end

-- Sleeps under the fake clock. Of several concurrent sleeps the one that ends first advances the clocks. Renewals of a
-- lock go by the real clock, as the lock itself: else the clocks would not stop while its holder waits for something.
function host.time.sleep(seconds, is_real)
  if is_real or not at or type(seconds) ~= "number" then return real.sleep(seconds) end
  local one <close> = setmetatable({}, { __close = function(self) sleepers[self] = nil end })
  sleepers[one] = at + math.max(0, seconds)
  repeat real.sleep(0) until not at or is_first(one)
  if at and sleepers[one] > at then at, steady = sleepers[one], steady + sleepers[one] - at end
end

--- Parks the task without advancing any clock.
function clock.pause() real.sleep(0) end

--- The fake time: the time that was set, plus the time that passed since; nil while the clocks are real.
function clock.now() return at end

--- Sets the clocks. If the new time is later than that of an earlier call, the time between them elapses.
function clock.set(seconds)
  steady = not at and math.ceil(real.now()) or steady + math.max(0, seconds - at)
  at = seconds
end

-- -- store -------------------------------------------------------------------------------------------------------------

local ends = {}         -- key -> { time by host.time.now(), is_fake }
local buckets = {}      -- key of a limit -> the time by host.time.clock() at which it is full again
local counted = {}      -- store keys of the quotas that were counted

local function is_over(key)
  local found = ends[key]
  if not found or found[1] > host.time.now() then return false end
  ends[key] = nil
  real.delete(key)
  return true
end

local function keep(key, seconds) ends[key] = seconds and { host.time.now() + seconds, at ~= nil } or nil end

function host.store.set(key, text, seconds)
  local done, why = real.set(key, text)
  if done then keep(key, seconds) end
  return done, why
end

function host.store.add(key, text, seconds)
  is_over(key)
  local done, why = real.add(key, text)
  if done then keep(key, seconds) end
  return done, why
end

function host.store.get(key)
  if is_over(key) then return nil end
  return real.get(key)
end

function host.store.cas(key, old, text, seconds)
  if key:find "lock:" == 1 or key:find "near lock:" == 1 then return real.cas(key, old, text, seconds) end
  is_over(key)
  local done, why = real.cas(key, old, text)
  if done and (seconds or not text) then keep(key, seconds) end
  return done, why
end

function host.store.set_locked(key, text, lock, fence, seconds)
  local done, why = real.set_locked(key, text, lock, fence)
  if done then keep(key, seconds) end
  return done, why
end

function host.store.delete(key)
  ends[key] = nil
  return real.delete(key)
end

function host.store.keys(prefix, most)
  local over = {}
  for key, found in pairs(ends) do
    if found[1] <= host.time.now() then over[#over + 1] = key end
  end
  for _, key in ipairs(over) do is_over(key) end
  return real.keys(prefix, most)
end

function host.store.incr(key, n, seconds)
  is_over(key)
  local is_new = real.get(key) == nil
  local sum, why = real.incr(key, n)
  if sum and is_new then keep(key, seconds) end
  if key:find "^q:" or key:find "^visitor q:" then counted[key] = true end
  return sum, why
end

-- Takes a token of a bucket, which holds `burst` tokens and gains one every `interval` seconds: true; or false and the
-- seconds until the next token.
function host.store.take(key, interval, burst)
  local now, whole = host.time.clock(), interval * burst
  local full_at = math.max(buckets[key] or now, now)
  if full_at > now + whole then full_at = now end
  local wait = full_at + interval - now - whole
  if wait > 1e-9 then return false, wait end
  buckets[key] = full_at + interval
  return true
end

--- Restores the real clocks. Counters of limits and quotas are reset, and store entries whose ttl began under a fake
--- clock are removed.
function clock.reset()
  for key, found in pairs(ends) do
    if found[2] then
      real.delete(key)
      ends[key] = nil
    end
  end
  for key in pairs(counted) do real.delete(key) end
  at, steady, buckets, counted = nil, nil, {}, {}
end

return clock
