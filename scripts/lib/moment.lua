-- Moments as people write them: read("2026-07-28T12:00:00Z") returns seconds since 1970, or nil and why.

local moment = {}

-- Days since 1970-01-01 in the Gregorian calendar; a year begins in March, so a leap day is its last.
local function days(year, month, day)
  local y = month <= 2 and year - 1 or year
  local era = y // 400
  local of_era = y - era * 400
  local of_year = (153 * (month + (month > 2 and -3 or 9)) + 2) // 5 + day - 1
  return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
end

function moment.read(s)
  local year, month, day, rest = s:match "^(%d%d%d%d)%-(%d%d)%-(%d%d)(.*)$"
  local hour, minute, second = 0, 0, 0
  if rest and rest ~= "" then
    hour, minute, second = rest:match "^[T ](%d%d):(%d%d):?(%d*)Z?$"
    if second == "" then second = 0 end
  end
  if not year or not hour then return nil, "'" .. s .. "' is not a moment such as 2026-07-28T12:00:00Z" end
  year, month, day = math.tointeger(year), math.tointeger(month), math.tointeger(day)
  hour, minute, second = math.tointeger(hour), math.tointeger(minute), math.tointeger(second)
  if month < 1 or month > 12 or day < 1 or day > 31 or hour > 23 or minute > 59 or second > 60 then
    return nil, "there is no such moment as '" .. s .. "'"
  end
  return days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
end

return moment
