-- Tries an upstream before `moonpool add` writes it: connects to it with a configuration that contains it alone.

local probe_upstreams = require "moonpool.workbench.client.probe_upstreams"
local stderr = require "moonpool.workbench.format.stderr"
local wire = require "moonpool.wire"
local yaml_entry = require "moonpool.workbench.format.yaml_entry"

-- The folder of a file as an absolute path.
local function folder_of(path)
  local folder = path:match "^(.*)/[^/]*$" or "."
  local pipe <close> = assert(io.popen("cd -- '" .. folder:gsub("'", "'\\''") .. "' && pwd -P"))
  return pipe:read "l" or folder
end

-- The entry as it is in another folder.
local function moved(entry, folder)
  local other = {}
  for key, value in pairs(entry) do other[key] = value end
  if other.command then other.cwd = folder end
  return other
end

--- Returns 0 if the upstream answered, also with doubts; else an exit code, after printing why.
return function(entry, path)
  local name, wrong = wire.temporary_folder()
  if not name or not wire.mkdir(name .. "/scripts") then return stderr.wrong("cannot make a temporary folder: " .. tostring(wrong)) end
  local file = name .. "/moonpool.yaml"
  local made, why = wire.create(file, "admin: off\nupstreams:\n  " .. yaml_entry(moved(entry, folder_of(path))):gsub("\n(.)", "\n  %1"), true)
  local code, has_answered = 1, false
  if made then code, has_answered = probe_upstreams.run(file, true) else stderr.wrong(why) end
  os.remove(file)
  os.remove(name .. "/scripts")
  os.remove(name)
  return has_answered and 0 or code
end
