-- `moonpool test` runs this in the Lua state of the tool.
describe("now", function()
  before_each(function() fake.time(os.time { year = 2026, month = 7, day = 28, hour = 12 }) end)

  it("tells the weekday", function()
    assert.equal("Tuesday", call("now").structured.weekday)
  end)

  it("counts the seconds since another moment", function()
    local before = assert(call("now", { than = "2026-07-27" })).structured
    local after = assert(call("now", { than = "2026-07-28" })).structured
    assert.equal(86400, before.seconds_since - after.seconds_since)
  end)

  it("says what it cannot read", function()
    local result, why = call("now", { than = "tomorrow" })
    assert.is_nil(result)
    assert.contains("tomorrow", why)
  end)
end)
