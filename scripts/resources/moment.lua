-- A template: moment://2026-07-28T12:00:00Z, or moment://2026-07-28.
return resource {
  "A moment in UTC: its weekday, and its seconds since 1970.",
  uri = "moment://{date}", mime = "application/json", ttl = 24 * hours, public = true,
  complete = {
    date = function(prefix)
      local days, today = {}, os.time()
      for ahead = 0, 6 do
        local day = os.date("!%Y-%m-%d", today + ahead * 86400)
        if day:sub(1, #prefix) == prefix then days[#days + 1] = day end
      end
      return days
    end,
  },
  function(vars)
    local at = require("moment").read(vars.date)
    return at and { utc = os.date("!%Y-%m-%dT%H:%M:%SZ", at), unix = at, weekday = os.date("!%A", at) }
  end,
}
