-- Times of what scripts use, for /metrics: a request, a statement, a program, an auth script.
--   local measured <close> = timed.start(owner, "exec", name)
--   measured.outcome = "0"
-- What ends without an outcome was cancelled. `owner` is a table of the library that lasts: it keeps the numbers of its
-- series by outcome.

local host = require "moonpool.host"

local timed = {}

local mt = {
  __close = function(self)
    local outcome = self.outcome or "cancelled"
    local known = self.owner.series
    local series = known[outcome]
    if not series then
      if self.second then
        series = host.metrics.series(self.family, self.first, self.second, outcome)
      else
        series = host.metrics.series(self.family, self.first, outcome)
      end
      known[outcome] = series
    end
    host.metrics.observe(series, host.time.now() - self.began)
  end,
}

--- Starts the time of one use of `owner`. `first` and `second` are the values of the family's labels before its
--- outcome.
function timed.start(owner, family, first, second)
  owner.series = owner.series or {}
  return setmetatable({ owner = owner, family = family, first = first, second = second, began = host.time.now() }, mt)
end

return timed
