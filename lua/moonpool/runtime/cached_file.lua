-- A file that is named by an option of a script, such as `key_file`. It is read when first needed, and again after it
-- has changed. While the file cannot be read or parsed, its last good contents stay in use.

local host = require "moonpool.host"
local flight = require "moonpool.runtime.single_flight"
local grants = require "moonpool.runtime.grants"
local paths = require "moonpool.runtime.paths"
local problem = require "moonpool.runtime.diagnostic"

local watched = {}
watched.__index = watched

local PAUSE = 1    -- seconds between two checks for a changed file
local MAX_CHECK_S = 10 -- seconds that one check may take

--- `fs` is the file library of the script; `parse(text)` returns the parsed value, or nil, why.
function watched.new(fs, path, parse)
  return setmetatable({ fs = fs, path = path, parse = parse, looked = -math.huge, flights = flight.new() }, watched)
end

--- Raises an error if no grant lets the script read the file. Called while scripts load.
function watched.check(script, path)
  local wanted, wrong = paths.absolute(path)
  if not wanted then problem.raise(2, "'" .. tostring(path) .. "' is not a path: " .. wrong) end
  if paths.within(paths.roots(script.granted.read), wanted) then return end
  problem.raise(2, grants.refusal("read", paths.shown(wanted), script.path), "the grant lets this script read the file")
end

local function look(self)
  local info, why = self.fs.stat(self.path)
  local mark = info and info.size .. " " .. tostring(info.modified)
  if info and mark == self.mark then return true end
  local text, value
  if info then text, why = self.fs.read(self.path) end
  if text then value, why = self.parse(text) end
  if value == nil then
    if why ~= self.why then host.log.write("error", "file not accepted", { path = self.path, why = why }) end
    self.why = why
    return nil, why
  end
  self.value, self.mark, self.why = value, mark, nil
  return true
end

--- Returns the parsed contents, another table once they have changed; or nil, why.
function watched:get()
  local now = host.time.now()
  if now - self.looked >= PAUSE then
    if self.value ~= nil then self.looked = now end -- other tasks use the contents that were read before
    self.flights:share("look", MAX_CHECK_S, function() return look(self) end)
    self.looked = host.time.now()
  end
  if self.value == nil then return nil, self.why or "the file cannot be read" end
  return self.value
end

return watched
