-- Formats the JSON of /status for people: what is wrong first, then scripts and their errors, then each gauge and
-- counter that is not 0.

local characters = require "moonpool.runtime.characters"
local json = require "moonpool.json"
local sorted = require "moonpool.runtime.sorted_keys"

local function since(ms)
  local seconds = ms // 1000
  if seconds < 60 then return seconds .. " s" end
  if seconds < 3600 then return ("%d min %d s"):format(seconds // 60, seconds % 60) end
  if seconds < 86400 then return ("%d h %d min"):format(seconds // 3600, seconds // 60 % 60) end
  return ("%d d %d h"):format(seconds // 86400, seconds // 3600 % 24)
end

-- Labels for people where a key of /status says less than it counts.
local LABELS = { refused = { origin = "host or origin" } }

local function counted(value, labels)
  if type(value) ~= "table" then return value ~= 0 and ("%d"):format(value) or nil end
  local list = {}
  for _, name in ipairs(sorted(value)) do
    if value[name] ~= 0 then list[#list + 1] = ("%s %d"):format(labels and labels[name] or name, value[name]) end
  end
  return list[1] and table.concat(list, ", ")
end

-- What is wrong, worst first: a line each, and what to do next.
local function put_conditions(lines, list)
  if #list == 0 then lines[#lines + 1] = "nothing is wrong" end
  for _, one in ipairs(list) do
    local when = one.since and ", since " .. one.since or ""
    lines[#lines + 1] = ("%-8s  %s%s%s"):format(one.severity, one.count and ("%d "):format(one.count) or "", characters.shown(one.what), when)
    lines[#lines + 1] = "          next: " .. one.next
  end
  lines[#lines + 1] = ""
end

-- An older process of the gateway, after an upgrade.
local function line_of_process(one)
  local version = one.version:gsub("%c", " ")
  local serves = one.answers == false and "does not answer" or ("%d session%s, %d call%s"):format(one.sessions, one.sessions == 1 and "" or "s",
    one.calls, one.calls == 1 and "" or "s")
  return ("older process %d, version %s, since %s: %s"):format(one.pid, version, os.date("!%Y-%m-%dT%H:%M:%SZ", one.since), serves)
end

local function put_family(lines, title, family)
  lines[#lines + 1] = title
  for _, name in ipairs(sorted(family)) do
    local text = counted(family[name], LABELS[name])
    if text then lines[#lines + 1] = ("  %-20s  %s"):format(name, text) end
  end
end

--- Formats `body`; nil if it is not the JSON of /status.
return function(body)
  local status = json.decode(body)
  if type(status) ~= "table" or type(status.scripts) ~= "table" then return nil end
  local scripts = status.scripts
  local serving = scripts.ok and ", since " .. scripts.at .. (scripts.changes ~= "" and ": " .. scripts.changes or "") or ""
  local lines = {}
  put_conditions(lines, status.conditions or {})
  for _, line in ipairs {
    ("moonpool %s, process %d, for %s, %d worker%s%s"):format(status.version, status.pid, since(status.uptime_ms), status.workers,
      status.workers == 1 and "" or "s", status.draining and ", draining" or ""),
    ("scripts: generation %d%s"):format(scripts.generation, serving),
  } do
    lines[#lines + 1] = line
  end
  if scripts.ok == false then
    lines[#lines + 1] = (scripts.start and "errors at %s:\n\n%s" or "not reloaded at %s: the previous version still serves\n\n%s"):format(
      scripts.at, scripts.errors)
  end
  if scripts.needs_restart then lines[#lines + 1] = "needs a restart: " .. scripts.needs_restart end
  for _, one in ipairs(status.certificates) do
    lines[#lines + 1] = ("certificate of %s%s: %s%s"):format(one.name and one.name .. " at " or "", one.address,
      one.expires and "until " .. one.expires or "none is served", one.ok and "" or ", and the new one is refused: see the log")
  end
  for _, one in ipairs(status.upgrade or {}) do lines[#lines + 1] = line_of_process(one) end
  lines[#lines] = lines[#lines]:gsub("\n*$", "\n") -- an empty line between two groups
  put_family(lines, "gauges", status.gauges)
  put_family(lines, "counters", status.counters)
  return table.concat(lines, "\n") .. "\n"
end
