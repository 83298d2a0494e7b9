-- A program in front of a gateway, nginx or HAProxy, that listens at a port of this machine until it is stopped.
local uv = require "luv"
local children = require "spec.helpers.children"
local free_port = require "spec.helpers.free_port"
local wait = require "spec.helpers.wait"

local front = {}
front.__index = front

-- The path of a program that is installed, or nil. Those of administrators may be in folders that PATH does not have.
function front.find(name)
  for folder in ((os.getenv "PATH" or "") .. ":/usr/sbin:/usr/local/sbin"):gmatch "[^:]+" do
    if uv.fs_access(folder .. "/" .. name, "X") then return folder .. "/" .. name end
  end
end

local function accepts(port)
  local tcp, outcome = uv.new_tcp(), nil
  tcp:connect("127.0.0.1", port, function(err) outcome = err or "open" end)
  wait.for_fact("an answer about port " .. port, 20, function() return outcome end)
  tcp:close()
  return outcome == "open"
end

-- `text`: the configuration, in which words in capitals are replaced: PORT, DIR (a folder of its own) and those of
-- `values`. `arguments(dir, file)`:
-- those of the program.
function front.start(name, text, values, arguments)
  local dir = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/moonpool-" .. name .. "-XXXXXX"))
  local self = setmetatable({ dir = dir, name = name, port = free_port() }, front)
  local all = { DIR = dir, PORT = self.port }
  for word, value in pairs(values) do all[word] = value end
  local path = dir .. "/" .. name .. ".conf"
  local file = assert(io.open(path, "w"))
  file:write((text:gsub("%u%u%u+", all)))
  file:close()
  local pid
  self.handle, pid = uv.spawn(front.find(name), { args = arguments(dir, path), stdio = {} }, function()
    children.alive[pid] = nil
    self.ended = true
    self.handle:close()
  end)
  assert(self.handle, pid)
  children.alive[pid] = true
  wait.for_fact(name .. " to listen", 10, function() return self.ended or accepts(self.port) end)
  assert(not self.ended, name .. " has ended")
  return self
end

function front:stop()
  if not self.ended then
    self.handle:kill "sigquit"
    self.handle:kill "sigterm"
    wait.for_fact(self.name .. " to end", 10, function() return self.ended end)
  end
  os.execute("rm -r '" .. self.dir .. "'")
end

front.__close = front.stop

return front
