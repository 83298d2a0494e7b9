-- A file that is named by an option of a script, such as `key_file`. It is read when first needed, and again after it
-- has changed. While the file cannot be read or parsed, its last good contents stay in use, after a reload those that an
-- earlier Lua state has accepted. A file that an auth script
-- names is tried from the start on, so that the log and `/readyz` say that it cannot be read before a client does.

local host = require "moonpool.host"
local bus = require "moonpool.runtime.bus"
local flight = require "moonpool.runtime.single_flight"
local grants = require "moonpool.runtime.grants"
local paths = require "moonpool.runtime.paths"
local problem = require "moonpool.runtime.diagnostic"

local watched = {}
watched.__index = watched

local PAUSE = 1    -- seconds between two checks for a changed file
local MAX_CHECK_S = 10 -- seconds that one check may take

local all = {}         -- the files that scripts name while they load
local guards = {}      -- those of auth scripts
local is_loading, is_retired = true, false
local retired = host.task.event() -- set with is_retired

--- `fs` is the file library of `script`, which is { path, granted, key = the key of moonpool.yaml that names the file, if no
--- script does, pause = seconds between two checks }; `parse(text)` returns the parsed value; or nil, why, and optionally the line and what to do. The reason
--- contains nothing of the file.
function watched.new(fs, script, path, parse)
  local self = setmetatable({ fs = fs, script = script, path = path, parse = parse, looked = -math.huge, flights = flight.new(host.job.begin_own) }, watched)
  if not is_loading then return self end
  all[#all + 1] = self
  if script.path:find "^auth/" then guards[#guards + 1] = self end
  return self
end

--- Raises an error if no grant lets the script read the file. Called while scripts load.
function watched.check(script, path)
  local wanted, wrong = paths.absolute(path)
  if not wanted then problem.raise(2, "'" .. tostring(path) .. "' is not a path: " .. wrong) end
  if paths.within(paths.roots(script.granted.read), wanted) then return end
  problem.raise(2, grants.refusal("read", paths.shown(wanted), script.path), "the grant lets this script read the file")
end

local function place_of(self, line) return line and self.path .. ":" .. line or self.path end

local function look(self)
  local info, why = self.fs.stat(self.path)
  local mark = info and info.size .. " " .. tostring(info.modified)
  if info and mark == self.mark then return true end
  local text, value, line, hint
  if info then text, why = self.fs.read(self.path) end
  if text then value, why, line, hint = self.parse(text) end
  if value == nil then
    if why ~= self.why or line ~= self.line then
      host.log.write("error", "file not accepted", { path = place_of(self, line), why = why, hint = hint })
    end
    self.why, self.line = why, line
    local kept = self.value == nil and host.auth.kept_text(self.path)
    if kept then self.value = self.parse(kept) end
    return nil, why
  end
  host.auth.keep_text(self.path, text)
  self.value, self.mark, self.why, self.line = value, mark, nil, nil
  return true
end

--- Returns the parsed contents, another table once they have changed; or nil, why.
function watched:get()
  local now = host.time.now()
  if now - self.looked >= (self.script.pause or PAUSE) then
    if self.value ~= nil then self.looked = now end -- other tasks use the contents that were read before
    self.flights:share("look", MAX_CHECK_S, function() return look(self) end)
    self.looked = host.time.now()
  end
  if self.value == nil then return nil, self.why or "the file cannot be read" end
  return self.value
end

--- Reads all files on this thread, for `moonpool check`: appends a text to `list` for each that is not accepted.
function watched.doubts(list)
  for _, self in ipairs(all) do
    local root, rest = paths.within(paths.roots(self.script.granted.read), (paths.absolute(self.path)))
    local text, why = host.fs.read_at_once(root, rest)
    local value, wrong, line, hint
    if text then value, wrong, line, hint = self.parse(text) else wrong = "the file cannot be read: " .. why end
    if value == nil then
      list[#list + 1] = problem.text(place_of(self, line), nil, wrong,
        hint or (self.script.key or host.script.root .. "/" .. self.script.path) .. " names this file: it must be one that the gateway's user can read")
    end
  end
end

-- Reads the files of auth scripts, again and again until each was read once. Requests of clients would cause that, too,
-- but `/readyz` keeps clients away meanwhile. Each try is a task of its own, with the limits of one.
local function try_guards()
  host.job.begin_own(function()
    local unread = 0
    for _, self in ipairs(guards) do unread = unread + (self:get() == nil and 1 or 0) end
    if is_retired then return end
    host.auth.count_unread(unread)
    if unread == 0 or retired:wait(PAUSE) then return end
    try_guards()
  end, #guards * MAX_CHECK_S + 2 * PAUSE)
end

bus.on("attached", function()
  is_loading = false
  if guards[1] then try_guards() end
end)

bus.on("retired", function()
  is_retired = true
  retired:set()
  if guards[1] then host.auth.count_unread(0) end
end)

return watched
