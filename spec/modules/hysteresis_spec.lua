-- What /readyz says of a value that has a limit: it must be above it for 5 seconds, and then below four fifths of it
-- for 5 seconds.
local hysteresis = require "modules".hysteresis

-- Samples once a second; returns the seconds at which the answer changed.
local function changes(values, limit)
  local one, was, list = hysteresis.new(), false, {}
  for second, value in ipairs(values) do
    local is = hysteresis.step(one, value, limit, second * 1000)
    if is ~= was then list[#list + 1] = second end
    was = is
  end
  return list
end

local function times(n, value, list)
  list = list or {}
  for _ = 1, n do list[#list + 1] = value end
  return list
end

describe("a value that is held against a limit", function()
  it("counts when it was above the limit for five seconds, and until it was below four fifths for five", function()
    assert.same({ 6, 26 }, changes(times(10, 0.5, times(20, 0.96)), 0.95))
    assert.same({ 6 }, changes(times(100, 0.8, times(20, 0.96)), 0.95))
    assert.same({ 6 }, changes(times(20, 1), 1))
  end)

  it("does not change by what is shorter", function()
    local peaks, gaps = {}, times(10, 1)
    for _ = 1, 50 do
      times(1, 0.2, times(4, 1, peaks))
      times(1, 1, times(4, 0.2, gaps))
    end
    assert.same({}, changes(peaks, 0.95))
    assert.same({ 6 }, changes(gaps, 0.95))
  end)

  it("changes at most once in five seconds, whatever the values are", function()
    local values = {}
    math.randomseed(7)
    for i = 1, 2000 do values[i] = math.random() < 0.5 and 1 or 0 end
    local list = changes(values, 0.5)
    for i = 2, #list do assert.is_true(list[i] - list[i - 1] >= 5) end
  end)
end)
