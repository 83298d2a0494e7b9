-- Cron expressions for jobs: "0 3 * * 1-5" is three in the morning from Monday to Friday.
--   minute, hour, day of the month, month, day of the week (0 and 7 are Sunday); "*", numbers, ranges, lists, steps, and names of months
--   and days. If both day fields are restricted, a day that matches one of them is enough.

local zone = require "moonpool.lib.zone"

local cron = {}

local fields = {
  { name = "minute", least = 0, most = 59 }, { name = "hour", least = 0, most = 23 }, { name = "day", least = 1, most = 31 },
  { name = "month", least = 1, most = 12, words = { "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec" } },
  { name = "weekday", least = 0, most = 7, words = { [0] = "sun", "mon", "tue", "wed", "thu", "fri", "sat" } },
}

local function number_of(field, text)
  for n, word in pairs(field.words or {}) do
    if word == text:lower() then return n end
  end
  local n = text:find "^%d%d?$" and math.tointeger(text)
  return n and n >= field.least and n <= field.most and n or nil
end

-- Parses one field to the set of numbers that it allows; nil if it is malformed.
local function read_field(field, text)
  local set = {}
  for part in (text .. ","):gmatch "([^,]*)," do
    local range, step = part:match "^([^/]+)/?(.*)$"
    step = step == "" and 1 or step and step:find "^%d%d?$" and math.tointeger(step)
    if not range or not step or step == 0 then return nil end
    local from, to
    if range == "*" then
      from, to = field.least, field.most
    else
      local first, last = range:match "^([%w]+)-([%w]+)$"
      from = number_of(field, first or range)
      to = first and number_of(field, last) or not first and (part:find("/", 1, true) and field.most or from)
    end
    if not from or not to or from > to then return nil end
    for n = from, to, step do set[n] = true end
  end
  if field.name == "weekday" and set[7] then set[0] = true end
  return set
end

--- Parses an expression for a time zone; or nil, why.
function cron.read(text, zone_name)
  local parts = {}
  for part in text:gmatch "%S+" do parts[#parts + 1] = part end
  if #parts ~= 5 then return nil, "'" .. text:sub(1, 64) .. "' has " .. #parts .. " fields, not five: minute, hour, day, month, weekday" end
  local made = { zone = zone.utc, is_each_hour = parts[2]:sub(1, 1) == "*", any_day = parts[3]:sub(1, 1) == "*", any_weekday = parts[5]:sub(1, 1) == "*" }
  for i, field in ipairs(fields) do
    made[field.name] = read_field(field, parts[i])
    if not made[field.name] then
      return nil, ("'%s' is not a %s: numbers from %d to %d, as in 1-5, 1,15 or */10"):format(parts[i]:sub(1, 64), field.name, field.least, field.most)
    end
  end
  if zone_name then
    local why
    made.zone, why = zone.open(zone_name)
    if not made.zone then return nil, why end
  end
  return made
end

-- True if the expression matches a minute of local time, given in seconds since 1970.
local function fits(self, at)
  local t = os.date("!*t", at)
  if not (self.minute[t.min] and self.hour[t.hour] and self.month[t.month]) then return false end
  local day, weekday = self.day[t.day] or false, self.weekday[t.wday - 1] or false
  if self.any_day or self.any_weekday then return day and weekday end
  return day or weekday
end

--- The name of the run that is due in the minute of `now` (seconds since 1970), or nil. A local time that is skipped
--- because clocks are put forward is due right after the change. A local time that exists twice has one name, so its
--- run happens once. An expression that matches every hour follows the elapsed hours instead.
function cron.due(self, now)
  local minute = now // 60 * 60 | 0
  local offset = zone.offset(self.zone, minute)
  local here = minute + offset
  if fits(self, here) then return self.is_each_hour and "u" .. minute or "l" .. here end
  local jump = offset - zone.offset(self.zone, minute - 60)
  if jump <= 0 or self.is_each_hour then return nil end
  for skipped = here - math.min(jump, 10800), here - 60, 60 do
    if fits(self, skipped) then return "l" .. skipped end
  end
end

--- The instant of the run that is due in the minute of `now`, in seconds since 1970, or nil. A local time that exists twice has
--- one run, at the first of its instants.
function cron.slot(self, now)
  local run, minute = cron.due(self, now), now // 60 * 60 | 0
  if not run or self.is_each_hour then return run and minute end
  local back = zone.offset(self.zone, minute - 10800) - zone.offset(self.zone, minute)
  return back > 0 and cron.due(self, minute - back) == run and minute - back or minute
end

--- The beginning of the next minute after `now` in which the expression is due, in seconds since 1970; nil if there is
--- none for a year.
function cron.next(self, now)
  local at = (now // 60 + 1) * 60 | 0
  for _ = 1, 1500 do -- a year of days, and the hours and minutes of one
    if cron.due(self, at) then return at end
    local offset = zone.offset(self.zone, at)
    local here = at + offset
    local t = os.date("!*t", here)
    local day, weekday = self.day[t.day] or false, self.weekday[t.wday - 1] or false
    local is_day = day and weekday
    if not (self.any_day or self.any_weekday) then is_day = day or weekday end
    if not (is_day and self.month[t.month]) then
      at = at + 86400 - here % 86400
      at = at + offset - zone.offset(self.zone, at) -- the next midnight, also where the clock is changed on the way
    elseif not self.hour[t.hour] then
      at = at + 3600 - here % 3600
    else
      at = at + 60
    end
  end
end

return cron
