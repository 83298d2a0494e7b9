-- Waiting for facts: the luv loop runs until a fact is true or the deadline is over. No function here sleeps.
local uv = require "luv"

local wait = {}

-- Seconds that one turn of the loop adds to a wait at most: if the machine stands still for a while, no deadline passes
-- because of that.
local LONGEST_TURN = 0.1

local LONGEST_PAUSE <const> = 20e6 -- nanoseconds: the longest pause between two checks of a fact whose check takes time

-- Sanitizers make a gateway several times slower: a deadline is that many times later.
wait.slower = (os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS") and 4 or 1

local closing = { __close = function(self)
  self.handle:close()
end }

-- A function that runs the loop once, and returns what `fact` says then; and a ticker to close. A fact that takes time
-- itself, since it asks the gateway or reads a file, is looked at in a fifth of the time at most (between two looks the
-- function returns nothing): else a wait would keep a processor busy.
local function looks(fact)
  local ticker = setmetatable({ handle = uv.new_timer() }, closing)
  ticker.handle:start(2, 2, function() end) -- facts without an event (a file, /proc) are looked at every two milliseconds
  local again = 0
  return function()
    uv.run "once"
    local began = uv.hrtime()
    if began < again then return end
    local found = table.pack(fact())
    local ended = uv.hrtime()
    again = ended + math.min((ended - began) * 4, LONGEST_PAUSE)
    return table.unpack(found, 1, found.n)
  end, ticker
end

-- Runs `fact` after turns of the loop until it returns a value other than nil or false, and returns that value.
-- `what` completes "waited 5 s for …"; if it is a function, it is called only when the deadline is over.
function wait.for_fact(what, seconds, fact)
  local spent, last = 0, uv.hrtime()
  local found = table.pack(fact())
  if found[1] then
    return table.unpack(found, 1, found.n)
  end
  local look <const>, _ <close> = looks(fact)
  while spent < seconds * wait.slower do
    found = table.pack(look())
    if found[1] then
      return table.unpack(found, 1, found.n)
    end
    local now = uv.hrtime()
    spent, last = spent + math.min((now - last) / 1e9, LONGEST_TURN), now
  end
  error(("waited %g s for %s"):format(seconds * wait.slower, type(what) == "function" and what() or what), 2)
end

-- Lets `seconds` pass while the loop runs: only to prove that an event does *not* happen in this time.
function wait.quietly(seconds, never)
  local started = uv.hrtime()
  local look <const>, _ <close> = looks(never or function() end)
  while (uv.hrtime() - started) / 1e9 < seconds do
    local bad = look()
    if bad then
      error(("within %g s: %s"):format(seconds, tostring(bad)), 2)
    end
  end
end

-- Runs `f` and returns the seconds that it took, then its results.
function wait.timed(f, ...)
  local started = uv.hrtime()
  local found = table.pack(f(...))
  return (uv.hrtime() - started) / 1e9, table.unpack(found, 1, found.n)
end

-- The least time that a clock can show after a timer of `seconds`. Timers count whole milliseconds of a clock that is
-- read once in a turn of the loop, in the spec and in the gateway, so each may fire almost a millisecond early.
function wait.least(seconds)
  return seconds - 0.002
end

-- Calls f(try) until one call takes no longer than `enough` seconds, at most `tries` times; the least seconds that a
-- call took. What delays every call is found by that; what delays some is the machine's other work.
function wait.soonest(tries, enough, f)
  local soonest = math.huge
  for try = 1, tries do
    soonest = math.min(soonest, (wait.timed(f, try)))
    if soonest <= enough then
      break
    end
  end
  return soonest
end

return wait
