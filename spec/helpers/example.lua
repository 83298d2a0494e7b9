-- An example as described in its README: its commands run as written there, except for the ports.
--   local dir, commands, ports = example.copy("notes", { "README.md", "moonpool.yaml", … })
--   local served <close> = example.run_beside(commands[1], dir)
local uv = require "luv"
local children = require "spec.helpers.children"
local free_port = require "spec.helpers.free_port"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local example = {}

function example.read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

--- Makes a copy with free ports: returns its folder, the commands of its README, and the new ports by the ports in the
--- README.
function example.copy(name, files)
  local ports = {}
  for _, port in ipairs { "7300", "7301", "7380", "7390", "7391" } do ports[port] = free_port() end
  local list, root = {}, "examples/" .. name .. "/"
  for _, file in ipairs(files) do list[root .. file] = example.read(root .. file):gsub("73%d%d", ports) end
  local dir = gateway.prepare { files = list }
  local commands = {}
  for line in list[root .. "README.md"]:gmatch "\n    ([^\n]+)" do commands[#commands + 1] = line end
  return dir, commands, ports
end

function example.program() return uv.fs_realpath(gateway.binary) end

--- Runs a command that ends in "&" in `dir`; returns a value whose __close ends it.
function example.run_beside(command, dir)
  local process = {}
  local line = "exec " .. command:gsub("%s*&$", ""):gsub("^moonpool ", example.program() .. " ")
  process.handle, process.pid = uv.spawn("/bin/sh", { args = { "-c", line }, cwd = dir, stdio = { nil, nil, nil } }, function(code)
    process.code = code
    children.alive[process.pid] = nil
    process.handle:close()
  end)
  assert(process.handle, process.pid)
  children.alive[process.pid] = true
  return setmetatable(process, { __close = function(self)
    if not self.code then self.handle:kill "sigterm" end
    wait.for_fact("it to end", 10, function() return self.code end)
  end })
end

function example.await_port(port)
  wait.for_fact("port " .. port, 10, function()
    local tcp, outcome = uv.new_tcp(), nil
    tcp:connect("127.0.0.1", port, function(failed) outcome = failed or true end)
    wait.for_fact("a connection", 20, function() return outcome end)
    tcp:close()
    return outcome == true
  end)
end

return example
