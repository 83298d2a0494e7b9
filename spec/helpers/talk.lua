-- Runs a program of spec/clients: it prints facts, each as a line of JSON, and continues after a signal.
--   local user <close> = talk.start("elicit2.mjs", { g.url, "--wait" })
local cjson = require "cjson.safe"
local uv = require "luv"
local children = require "spec.helpers.children"
local node = require "spec.helpers.node"
local wait = require "spec.helpers.wait"

local talk = {}
talk.__index = talk

local PATIENCE = 30 -- seconds

local function read_into(pipe, take)
  pipe:read_start(function(_, bytes)
    if bytes then
      take(bytes)
    else
      pipe:close()
    end
  end)
end

function talk.start(script, args)
  local self = setmetatable({ facts = {}, complaints = "", rest = "", input = uv.new_pipe(false) }, talk)
  local out, err = uv.new_pipe(false), uv.new_pipe(false)
  local all = { node.folder .. "/" .. script }
  table.move(args, 1, #args, 2, all)
  local handle, pid
  handle, pid = uv.spawn(node.path, { args = all, stdio = { self.input, out, err }, env = { "PATH=" .. os.getenv "PATH" } }, function(code)
    self.code = code
    children.alive[pid] = nil
    handle:close()
  end)
  assert(handle, pid)
  self.pid = pid
  children.alive[pid] = true
  read_into(out, function(bytes)
    self.rest = (self.rest .. bytes):gsub("([^\n]*)\n", function(line)
      table.insert(self.facts, cjson.decode(line) or { fact = "nonsense", line = line })
      return ""
    end)
  end)
  read_into(err, function(bytes) self.complaints = self.complaints .. bytes end)
  return self
end

--- The n-th fact of that name (by default the first).
function talk:wait_fact(name, n)
  local function named() return ("fact %s; there are %s %s"):format(name, cjson.encode(self.facts), self.complaints) end
  return wait.for_fact(named, PATIENCE, function()
    local found = self:all(name)
    return found[n or 1] or (self.code and error("the client ended: " .. named(), 0))
  end)
end

--- All facts of that name so far.
function talk:all(name)
  local list = {}
  for _, fact in ipairs(self.facts) do
    if fact.fact == name then list[#list + 1] = fact end
  end
  return list
end

function talk:say(line)
  self.input:write(line .. "\n")
end

--- Waits until the program ends; fails unless it exits with 0.
function talk:finish()
  wait.for_fact("the client to end", PATIENCE, function() return self.code end)
  assert(self.code == 0 and self.complaints == "" and #self:all "error" == 0, cjson.encode(self.facts) .. self.complaints)
end

function talk:__close()
  if not self.code then
    uv.kill(self.pid, "sigkill")
    wait.for_fact("the client to end", PATIENCE, function() return self.code end)
  end
  if not self.input:is_closing() then self.input:close() end
end

return talk
