-- Time zones, read from the files of the system's database (RFC 8536). The C library is not used: a process has one TZ,
-- and setting it is not safe with threads. A zone gives the seconds that local time is ahead of UTC.

local zone = {}

local FOLDER, MAX_FILE_BYTES = "/usr/share/zoneinfo/", 65536

local function days_from_civil(year, month, day)
  if month <= 2 then year = year - 1 end
  local era = year // 400
  local of_era = year - era * 400
  local of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
  return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
end

-- Parses an offset of a POSIX TZ, such as "-1" or "3:30", to seconds. POSIX counts offsets as positive west of
-- Greenwich.
local function hms(text)
  local sign, hours, minutes, seconds = text:match "^([+-]?)(%d+):?(%d*):?(%d*)$"
  if not hours then return nil end
  return (sign == "-" and -1 or 1) * (tonumber(hours) * 3600 + (tonumber(minutes) or 0) * 60 + (tonumber(seconds) or 0))
end

-- Parses a rule of a POSIX TZ such as "M3.5.0/2": month, week (5 is the last one), weekday, seconds of local time.
local function read_rule(text)
  local month, week, day, time = text:match "^M(%d+)%.(%d)%.(%d)/?(.*)$"
  if not month then return nil end
  return { month = tonumber(month), week = tonumber(week), day = tonumber(day), time = time == "" and 7200 or hms(time) }
end

-- Parses the footer of a zone file, a POSIX TZ that applies after the last transition. Nil if its form is not
-- supported.
local function read_footer(text)
  local name = "[%a]+"
  if text:sub(1, 1) == "<" then name = "<[^>]+>" end
  local offset, rest = text:match("^" .. name .. "([+-]?[%d:]+)(.*)$")
  if not offset then return nil end
  local made = { standard = -hms(offset) }
  if rest == "" then return made end
  local summer, from, to = rest:match "^<?[%a+%-%d]-[>%a]([+-]?[%d:]*),([^,]+),([^,]+)$"
  if not from then return nil end
  made.summer = summer ~= "" and hms(summer) and -hms(summer) or made.standard + 3600
  made.from, made.to = read_rule(from), read_rule(to)
  return made.from and made.to and made.from.time and made.to.time and made or nil
end

-- The time at which a rule applies in a year, in seconds of local time since 1970.
local function moment(rule, year)
  local first = days_from_civil(year, rule.month, 1)
  local day = first + (rule.day - (first + 4) % 7) % 7 + (rule.week - 1) * 7
  local following = rule.month == 12 and days_from_civil(year + 1, 1, 1) or days_from_civil(year, rule.month + 1, 1)
  while day >= following do day = day - 7 end
  return day * 86400 + rule.time
end

local function footer_offset(footer, at)
  if not footer.from then return footer.standard end
  local year = os.date("!*t", at + footer.standard).year
  local from, to = moment(footer.from, year) - footer.standard, moment(footer.to, year) - footer.summer
  local is_summer
  if from < to then is_summer = at >= from and at < to else is_summer = at >= from or at < to end
  return is_summer and footer.summer or footer.standard
end

-- Parses the tables of a zone file; nil if the file is malformed.
local function parse(bytes)
  if #bytes < 44 or bytes:sub(1, 4) ~= "TZif" then return nil end
  local function counts(at) return string.unpack(">I4I4I4I4I4I4", bytes, at + 20) end
  local utc, std, leap, times, types, chars = counts(1)
  local at, size = 1, 4
  if bytes:byte(5) >= 50 then          -- version 2 and later: the data again, with times of eight bytes
    at, size = 45 + times * 5 + types * 6 + chars + leap * 8 + std + utc, 8
    if bytes:sub(at, at + 3) ~= "TZif" then return nil end
    utc, std, leap, times, types, chars = counts(at)
  end
  if types < 1 then return nil end
  local made, data = { times = {}, offsets = {} }, at + 44
  local infos, indexes = data + times * (size + 1), data + times * size
  local function offset_of(index) return (string.unpack(">i4", bytes, infos + index * 6)) end
  for i = 1, times do
    made.times[i] = string.unpack(size == 8 and ">i8" or ">i4", bytes, data + (i - 1) * size)
    made.offsets[i] = offset_of(bytes:byte(indexes + i - 1))
  end
  made.first = offset_of(0)
  local footer = bytes:sub(infos + types * 6 + chars + leap * (size + 4) + std + utc):match "^\n([^\n]*)\n"
  made.footer = footer and footer ~= "" and read_footer(footer) or nil
  return made
end

local known = {}

--- Loads the zone with a name such as "Europe/Berlin"; or nil, why.
function zone.open(name)
  if known[name] then return known[name] end
  if #name > 64 or not name:find "^[%a][%w_+/-]*$" or name:find("//", 1, true) then return nil, "'" .. name:sub(1, 64) .. "' is not the name of a time zone" end
  local file = io.open(FOLDER .. name, "rb")
  local bytes = file and file:read(MAX_FILE_BYTES)
  if file then file:close() end
  local ok, made = pcall(parse, bytes or "")
  if not ok or not made then
    if name == "UTC" then return zone.utc end
    return nil, "there is no time zone '" .. name .. "' in " .. FOLDER
  end
  known[name] = made
  return made
end

--- The number of seconds that local time is ahead of UTC at a time, which is in seconds since 1970.
function zone.offset(of, at)
  local times, low, high = of.times, 0, #of.times
  while low < high do
    local middle = (low + high + 1) // 2
    if times[middle] <= at then low = middle else high = middle - 1 end
  end
  if low == 0 then return #times == 0 and of.footer and footer_offset(of.footer, at) or of.first end
  if low == #times and of.footer then return footer_offset(of.footer, at) end
  return of.offsets[low]
end

zone.utc = { times = {}, offsets = {}, first = 0 }

return zone
