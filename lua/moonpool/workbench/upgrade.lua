-- What the gateway has answered to moonpool upgrade, for people.
local json = require "moonpool.json"

local upgrade = {}

local function decode(body)
  local ok, answer = pcall(json.decode, body)
  return ok and type(answer) == "table" and answer or {}
end

--- Why there was no upgrade, and what to do.
function upgrade.reason(body, status)
  local answer = decode(body)
  local text = answer.error or body:match "^(.-)%s*$"
  return text ~= "" and text or "the gateway answered with " .. status, answer.hint
end

--- The processes, and what has not changed.
function upgrade.text(body)
  local answer = decode(body)
  local from = answer.from or {}
  local lines = {
    ("process %s serves now, version %s"):format(answer.pid, answer.version),
    ("process %s, version %s, serves its sessions until they end, for an hour at most"):format(from.pid, from.version),
  }
  if answer.is_service then
    lines[3] = "environment, limits and sandbox are as before: what changed in the unit or its EnvironmentFile waits for a restart"
  else
    lines[3] = "a program that watches the earlier process watches the wrong one now; the environment is as before"
  end
  return table.concat(lines, "\n")
end

return upgrade
