-- Times of day for jobs, in time zones of the system's database, over changes of the clock.
local host = require "spec.helpers.host"

describe("cron", function()
  local cron, zone
  before_each(function()
    host.start {}
    cron, zone = require "moonpool.lib.cron", require "moonpool.lib.zone"
  end)
  after_each(host.stop)

  -- Seconds since 1970 of a time in UTC.
  local function at(text)
    local y, m, d, h, min = text:match "(%d+)-(%d+)-(%d+) (%d+):(%d+)"
    y, m, d = tonumber(y), tonumber(m), tonumber(d)
    if m <= 2 then y, m = y - 1, m + 12 end
    local days = 365 * y + y // 4 - y // 100 + y // 400 + (153 * (m - 3) + 2) // 5 + d - 1 - 719468
    return days * 86400 + tonumber(h) * 3600 + tonumber(min) * 60
  end

  -- The UTC times of the runs between two times; each run has one name, as the store has it.
  local function runs(expression, name, from, to)
    local read, seen, list = assert(cron.read(expression, name)), {}, {}
    for now = at(from), at(to), 60 do
      local run = cron.due(read, now + 13.5)
      if run and not seen[run] then
        seen[run] = true
        list[#list + 1] = os.date("!%m-%d %H:%M", now)
      end
    end
    return table.concat(list, ", ")
  end

  it("reads expressions", function()
    assert.equal("11-23 03:00, 11-24 03:00", runs("0 3 * * 1-5", nil, "2026-11-21 00:00", "2026-11-24 12:00"))
    assert.equal("11-23 03:00, 11-24 03:00", runs("0 3 * nov mon-fri", nil, "2026-11-21 00:00", "2026-11-24 12:00"))
    assert.equal("11-22 00:00, 11-22 00:20, 11-22 00:40", runs("*/20 * * * *", nil, "2026-11-22 00:00", "2026-11-22 00:59"))
    assert.equal("11-22 06:05, 11-22 08:05", runs("5 6-9/2 * * *", nil, "2026-11-22 00:00", "2026-11-22 23:59"))
    assert.equal("11-22 12:00", runs("0 12 * * 7", nil, "2026-11-20 00:00", "2026-11-26 00:00"))
    assert.equal("11-22 12:00", runs("0 12 * * 0", nil, "2026-11-20 00:00", "2026-11-26 00:00"))
    -- a day runs the job if it matches the day of the month or the day of the week
    assert.equal("11-22 12:00, 11-25 12:00", runs("0 12 25 * sun", nil, "2026-11-20 00:00", "2026-11-26 00:00"))
    assert.equal("02-29 00:00", runs("0 0 29 2 *", nil, "2028-02-01 00:00", "2028-03-05 00:00"))
  end)

  it("goes by a time zone", function()
    assert.equal("07-01 01:00", runs("0 3 * * *", "Europe/Berlin", "2026-07-01 00:00", "2026-07-01 23:00"))
    assert.equal("12-01 02:00", runs("0 3 * * *", "Europe/Berlin", "2026-12-01 00:00", "2026-12-01 23:00"))
    assert.equal("12-01 18:30", runs("0 0 * * *", "Asia/Kolkata", "2026-12-01 00:00", "2026-12-01 23:00"))
    -- this time is after the last change of the clock that the zone's table lists
    assert.equal("07-01 07:00", runs("0 3 * * *", "America/New_York", "2090-07-01 00:00", "2090-07-01 23:00"))
  end)

  it("runs a time that does not exist when the clock has been put forward", function()
    assert.equal("03-28 01:30, 03-29 01:00, 03-30 00:30", runs("30 2 * * *", "Europe/Berlin", "2026-03-27 12:00", "2026-03-30 12:00"))
    assert.equal("03-29 00:30, 03-29 01:30", runs("30 * * * *", "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 02:00"))
  end)

  it("runs a time that exists twice once, but each hour", function()
    assert.equal("10-25 00:30", runs("30 2 * * *", "Europe/Berlin", "2026-10-25 00:00", "2026-10-25 23:00"))
    assert.equal("10-25 00:30, 10-25 01:30, 10-25 02:30", runs("30 * * * *", "Europe/Berlin", "2026-10-25 00:00", "2026-10-25 02:59"))
  end)

  it("finds the next time, as going through the minutes does", function()
    for _, case in ipairs {
      { "0 3 * * 1-5", nil, "2026-11-21 00:00" }, { "30 2 * * *", "Europe/Berlin", "2026-03-28 12:00" }, { "30 2 * * *", "Europe/Berlin", "2026-10-24 12:00" },
      { "5 0 29 3 *", "Europe/Berlin", "2026-03-20 12:00" }, { "*/7 * * * *", "Asia/Kolkata", "2026-11-21 00:01" }, { "59 23 30 * *", nil, "2026-11-29 23:58" },
      { "0 0 1 * 1", "America/New_York", "2026-10-28 00:00" },
    } do
      local expression, name, from = table.unpack(case, 1, 3)
      local read, now = assert(cron.read(expression, name)), at(from)
      local first = now // 60 * 60 + 60
      while not cron.due(read, first) do first = first + 60 end
      assert.equal(first, cron.next(read, now + 13.5), expression)
    end
    assert.equal(at "2028-02-29 00:00", cron.next(assert(cron.read "0 0 29 2 *"), at "2027-06-01 00:00"))
    assert.is_nil(cron.next(assert(cron.read "0 0 30 2 *"), at "2026-06-01 00:00"))
  end)

  it("has the offsets of the system", function()
    local berlin = assert(zone.open "Europe/Berlin")
    for text, hours in pairs { ["2026-01-01 00:00"] = 1, ["2026-03-29 00:59"] = 1, ["2026-03-29 01:00"] = 2, ["2026-10-25 00:59"] = 2,
      ["2026-10-25 01:00"] = 1, ["2060-07-01 00:00"] = 2, ["2060-12-01 00:00"] = 1 } do
      assert.equal(hours * 3600, zone.offset(berlin, at(text)), text)
    end
    assert.equal(0, zone.offset(assert(zone.open "UTC"), at "2026-01-01 00:00"))
    assert.equal(11 * 3600, zone.offset(assert(zone.open "Australia/Sydney"), at "2060-01-01 00:00"))
    assert.equal(19800, zone.offset(assert(zone.open "Asia/Kolkata"), at "2060-01-01 00:00"))
  end)

  it("refuses what is none, saying what", function()
    for text, said in pairs { ["0 3 * *"] = "has 4 fields, not five", ["60 3 * * *"] = "'60' is not a minute", ["0 3 * * 8"] = "'8' is not a weekday",
      ["0 5-3 * * *"] = "'5-3' is not a hour", ["*/0 * * * *"] = "'*/0' is not a minute", ["a * * * *"] = "'a' is not a minute", ["1,, * * * *"] = "'1,,'" } do
      local read, why = cron.read(text)
      assert.is_nil(read)
      assert.match(said, why, 1, true)
    end
    for _, name in ipairs { "Europe/Berlon", "../../etc/passwd", "/etc/passwd", "zone.tab", "Europe", "Europe/../Europe/Berlin", "" } do
      local read, why = cron.read("0 3 * * *", name)
      assert.is_nil(read, name)
      assert.match("time zone", why)
    end
  end)
end)
