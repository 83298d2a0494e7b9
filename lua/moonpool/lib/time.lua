-- The library `time` of scripts: clocks, and dates in the format of RFC 3339.

local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"

local time = {}

local MIN_TIME_S, MAX_TIME_S = -62135596800, 253402300799     -- limits of the timestamps: the years 1 to 9999

-- Days since 1970-01-01 of a date of the Gregorian calendar, which repeats every 400 years. The computation lets years
-- begin in March.
local function days_of(year, month, day)
  if month <= 2 then year = year - 1 end
  local era = year // 400
  local of_era = year - era * 400
  local of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
  return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
end

local function date_of(days)
  days = days + 719468
  local era = days // 146097
  local of_era = days - era * 146097
  local year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
  local of_year = of_era - (365 * year + year // 4 - year // 100)
  local month = (5 * of_year + 2) // 153
  local day = of_year - (153 * month + 2) // 5 + 1
  month = month < 10 and month + 3 or month - 9
  return year + era * 400 + (month <= 2 and 1 or 0), month, day
end

--- now(): seconds since 1970, with a fraction.
function time.now() return host.time.clock() end

--- monotonic(): seconds of the monotonic clock, which is never set.
function time.monotonic() return host.time.now() end

--- format([seconds]): RFC 3339 in UTC, with milliseconds if `seconds` has a fraction.
function time.format(seconds)
  seconds = seconds == nil and host.time.clock() or seconds
  if type(seconds) ~= "number" or not (seconds >= MIN_TIME_S and seconds <= MAX_TIME_S) then
    problem.raise(2, "time.format takes seconds since 1970, from the year 1 to 9999, not " .. tostring(seconds))
  end
  local whole = math.floor(seconds)
  local thousandths = math.floor((seconds - whole) * 1000)
  local year, month, day = date_of(whole // 86400)
  local rest = whole % 86400
  local fraction = thousandths > 0 and (".%03d"):format(thousandths) or ""
  return ("%04d-%02d-%02dT%02d:%02d:%02d%sZ"):format(year, month, day, rest // 3600, rest // 60 % 60, rest % 60, fraction)
end

local lengths = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }

local function days_in(year, month)
  if month == 2 and year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0) then return 29 end
  return lengths[month]
end

local function offset_of(zone)
  if zone == "Z" or zone == "z" then return 0 end
  local sign, hours, minutes = zone:match "^([+-])(%d%d):(%d%d)$"
  if not sign or tonumber(hours) > 23 or tonumber(minutes) > 59 then return nil end
  return (sign == "-" and -60 or 60) * (tonumber(hours) * 60 + tonumber(minutes))
end

local function read(text)
  local parts = table.pack(text:match "^(%d%d%d%d)-(%d%d)-(%d%d)[Tt ](%d%d):(%d%d):(%d%d)(%.?%d*)(.+)$")
  if not parts[1] then return nil end
  for i = 1, 6 do parts[i] = math.tointeger(parts[i]) end
  local year, month, day, hour, minute, second = table.unpack(parts, 1, 6)
  local fraction, offset = parts[7], offset_of(parts[8])
  if not offset or fraction ~= "" and not fraction:find "^%.%d+$" then return nil end
  if month < 1 or month > 12 or day < 1 or day > days_in(year, month) or hour > 23 or minute > 59 or second > 60 then return nil end
  local seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
  return fraction == "" and seconds or seconds + tonumber("0" .. fraction)
end

--- parse(text): seconds since 1970; or nil, why.
function time.parse(text)
  if type(text) ~= "string" then problem.raise(2, "time.parse takes a string, not a " .. type(text)) end
  local seconds = read(text)
  if not seconds then return nil, "the text is not an RFC 3339 date and time, such as 2026-07-28T12:00:00Z" end
  return seconds
end

return time
