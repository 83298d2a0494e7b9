-- Retry-After: the seconds of a refusal are those after which there is room for this client, where all refused clients
-- come back when they were told to. The clock is the spec's own.
local pace = require "modules".pace

local SECOND <const> = 1000000

-- A resource of which a place becomes free every `us`, for `seconds`, while 10 clients a second are refused; returns it
-- and the time then, when all clients that were refused have come back.
local function steady(us, seconds)
  local one, now = pace.new(), SECOND
  for tick = 1, seconds * 10 do
    local until_us = SECOND + tick * SECOND // 10
    one:count((until_us - SECOND) // us - (now - SECOND) // us)
    now = until_us
    one:refuse(now, 0, 0)
  end
  return one, now
end

-- `seconds` are right for a place that is free after `us`: within a fifth, or within the second that a whole number
-- costs.
local function assert_right(seconds, us)
  local off = seconds - us / SECOND
  assert.is_true(off >= -0.2 * us / SECOND and off <= math.max(1, 0.2 * us / SECOND),
    ("%d s for a place that is free after %.2f s"):format(seconds, us / SECOND))
end

describe("the time after which a refused client finds a place", function()
  for _, us in ipairs { 100, 20000, 500000, 3 * SECOND } do
    it(("is right where a place becomes free every %g ms"):format(us / 1000), function()
      local one, now = steady(us, 60)
      for client = 1, 40 do
        local free = client * us
        if free <= 50 * SECOND then assert_right(one:refuse(now, 0, 1), free) end
      end
    end)
  end

  it("gives no place twice: as many clients come back in each second as places become free", function()
    local one, now = steady(10000, 5)
    local back = {}
    for _ = 1, 1000 do
      local seconds = one:refuse(now, 0, 1)
      back[seconds] = (back[seconds] or 0) + 1
    end
    for second = 1, 10 do
      assert.is_true(back[second] >= 80 and back[second] <= 120, ("%s clients in second %d"):format(back[second], second))
    end
  end)

  it("counts those that wait before", function()
    local one, now = steady(10000, 5)
    assert_right(one:refuse(now, 800, 1), 8 * SECOND)
  end)

  it("follows a rate that has changed, within two seconds", function()
    local one, now = steady(1000, 10)
    for _ = 1, 30 do
      now = now + SECOND // 10
      one:count(10)
      one:refuse(now, 0, 0)
    end
    assert_right(one:refuse(now, 400, 1), 4 * SECOND)
  end)

  it("grows while nothing becomes free any more", function()
    local one, now = steady(1000, 10)
    assert.equal(1, one:refuse(now, 0, 1))
    assert.is_true(one:refuse(now + 8 * SECOND, 0, 1) >= 7)
    assert.is_true(one:refuse(now + 16 * SECOND, 0, 1) >= 15)
  end)

  it("does not take a quiet time for a slow one", function()
    local one, now = steady(1000, 10)
    one:count(3)
    assert.equal(1, one:refuse(now + 600 * SECOND, 0, 1))
    local new = pace.new()
    new:count(5)
    assert.equal(1, new:refuse(3600 * SECOND, 0, 1))
    assert.equal(1, new:refuse(3600 * SECOND + 1000, 0, 1))
  end)

  it("is a minute at most, and falls again when the places have become free", function()
    local one, now = steady(100000, 5)
    for _ = 1, 5000 do one:refuse(now, 0, 1) end
    assert.equal(60, one:refuse(now, 0, 1))
    assert.equal(60, one:refuse(now, 1 << 40, 1 << 40))
    assert.equal(1, one:refuse(now + 61 * SECOND, 0, 1))
  end)

  it("is a second where nothing is known", function()
    assert.equal(1, pace.new():refuse(SECOND, 100, 1))
  end)

  it("learns from an owner that measures by itself", function()
    local one = pace.new()
    assert.equal(0, one:time(10))
    one:learn(50, SECOND // 2)
    assert.equal(100000, one:time(10))
    assert_right(one:refuse(SECOND, 500, 1), 5 * SECOND)
  end)
end)
