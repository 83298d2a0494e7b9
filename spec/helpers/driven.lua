-- A program of C that a spec drives, built beside the gateway: it takes commands on its stdin, a line each with words
-- separated by tabs, and prints events on its stdout, a line each. process.lua and manager.lua have such programs.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"

local driven = {}

-- Adds the whole lines to self.lines.
local function take(self, bytes)
  local text, after = self.rest .. bytes, 1
  for line, stop in text:gmatch "([^\n]*)\n()" do
    self.lines[#self.lines + 1], after = line, stop
  end
  self.rest = text:sub(after)
end

--- Starts the program `name` in the folder self.dir. `self` gets process, pid, and lines, which are the events so far.
function driven.start(self, name, args, env)
  local program = uv.fs_realpath(gateway.binary):gsub("[^/]*$", name)
  self.lines, self.rest = {}, ""
  self.input, self.out = uv.new_pipe(false), uv.new_pipe(false)
  self.process = gateway.spawn(program, args, self.dir, { env = env, cwd = self.dir, stdin = self.input, stdout = self.out })
  self.pid = self.process.pid
  self.out:read_start(function(_, bytes)
    if bytes then take(self, bytes) end
  end)
  return self
end

--- Writes a command. A line feed in a word is sent as the byte 1.
function driven.command(self, ...)
  self.input:write(table.concat({ ... }, "\t"):gsub("\n", "\1") .. "\n")
  return self
end

--- Closes the pipes, unless they are closed.
function driven.close_pipes(self)
  for _, pipe in ipairs { self.input, self.out } do
    if not pipe:is_closing() then pipe:close() end
  end
end

return driven
