-- Parses durations on the command line: 30s, 10m, 1h, 90d.

local units = { s = 1, m = 60, h = 3600, d = 86400 }

--- The seconds of a duration; nil if the text is not a duration above zero.
return function(text)
  local number, unit = text:match "^(%d+)([smhd]?)$"
  local seconds = number and #number <= 9 and tonumber(number) * (units[unit] or 1)
  return seconds and seconds > 0 and seconds or nil
end
