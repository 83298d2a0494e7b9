-- The gateway's answer to moonpool upgrade as text for people.
local json = require "moonpool.json"

local upgrade = {}

local function decode(body)
  local ok, answer = pcall(json.decode, body)
  return ok and type(answer) == "table" and answer or {}
end

--- The reason that there was no upgrade, and a hint.
function upgrade.reason(body, status)
  local answer = decode(body)
  local text = answer.error or body:match "^(.-)%s*$"
  return text ~= "" and text or "the gateway answered with " .. status, answer.hint or "the process of before serves on: mend this, then upgrade again"
end

-- The unit of a process, from what /proc/PID/cgroup has, and the option of systemctl for its manager; nil if it is no
-- service's main folder.
local function unit_of(pid)
  local file <close> = io.open(("/proc/%d/cgroup"):format(pid))
  local path = ("\n" .. (file and file:read "a" or "")):match "\n%d+:[^:\n]*:(/[^\n]*%.service)\n"
  return path and path:match "/([%w:_.@\\-]+)$", path and path:find "/user@%d+%.service/" and "--user" or "--system"
end

-- The unit of both processes, if systemd says that its file has changed since it was read.
local function changed_unit(pid, from)
  local unit, manager = unit_of(pid)
  -- otherwise they run on another machine, or outside of systemd
  if not unit or unit ~= unit_of(from) then return nil end
  local command = ("timeout 5 systemctl %s show --property=NeedDaemonReload --value -- '%s' 2>/dev/null"):format(manager, unit)
  local answer <close> = io.popen(command)
  return answer and answer:read "l" == "yes" and unit
end

--- The processes, and the settings that the upgrade has not changed.
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
    lines[3] = ("what started process %s, as a shell, does not know the new one: moonpool drain ends that; the environment is as before"):format(from.pid)
  end
  local changed = math.type(answer.pid) == "integer" and math.type(from.pid) == "integer" and changed_unit(answer.pid, from.pid)
  if changed then
    lines[#lines + 1] = ("the file of %s has changed since systemd read it: run systemctl daemon-reload, and restart it when that suits"):format(changed)
  end
  return table.concat(lines, "\n")
end

return upgrade
