--- The current date and time in UTC, and how long ago or ahead another moment is.
---@param than? string  Another moment to compare with, as 2026-07-28T12:00:00Z or 2026-07-28
---@return { utc: string, unix: integer, weekday: string, seconds_since?: integer }
return function(than)
  local at = os.time()
  local answer = { utc = os.date("!%Y-%m-%dT%H:%M:%SZ", at), unix = at, weekday = os.date("!%A", at) }
  if than then answer.seconds_since = at - try(require("moment").read(than)) end
  return answer
end
