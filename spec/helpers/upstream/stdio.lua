-- stdio for a stub upstream: the gateway starts spec/upstreams/child.lua, which passes bytes between its pipes and this
-- process.
local cjson = require "cjson.safe"
local uv = require "luv"
local server = require "spec.helpers.upstream.server"
local wait = require "spec.helpers.wait"

local stdio = {}

local PATIENCE <const> = 20 -- seconds; a fact ends the wait at once

local exchange = setmetatable({}, { __index = server.exchange })
exchange.__index = exchange

function exchange:send(text) self.child:write(text .. "\n") end

--- Ends the process without an answer.
function exchange:drop()
  self.child:order("exit", "0")
  return self:forget()
end

-- -- one process ------------------------------------------------------------------------------------------------------------------

local child = {}
child.__index = child

--- Gives an order of child.lua: out, err, flood, exit, kill, pause, resume, close_out, ignore, stay, child.
function child:order(kind, bytes)
  bytes = tostring(bytes or "")
  if not self.control:is_closing() then self.control:write({ ("%s %d\n"):format(kind, #bytes), bytes }, function() end) end
  return self
end

--- Writes bytes to the stdout of the process.
function child:write(bytes) return self:order("out", bytes) end

--- True while a process of this number exists and is no zombie.
function child:is_alive()
  local file <close> = io.open("/proc/" .. self.pid .. "/stat")
  local state = file and file:read("a"):match "%) (%a)"
  return state ~= nil and state ~= "Z"
end

local function take_line(self, line)
  local host = self.host
  if line == "" then return end
  table.insert(self.lines, line)
  local json = cjson.decode(line)
  if type(json) ~= "table" or not (json.method or json.id) then return host:blame("a line is no message: %s", line:sub(1, 80)) end
  local more = { child = self }
  if not json.method then
    host:take_response(self.session, json, line, more)
  elseif json.id == nil then
    host:take_notification(self.session, json, line, more)
  else
    host:take(setmetatable({ session = self.session, text = line, json = json, child = self }, exchange))
  end
end

local takes = {}

function takes:hello(bytes)
  local pid, parent, label, folder, descriptors, environment = bytes:match "^(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n\n(.*)$"
  self.pid, self.parent, self.label, self.cwd = tonumber(pid), tonumber(parent), label, folder
  self.descriptors, self.environment = descriptors, {}
  for name, value in environment:gmatch "([^=\n]+)=([^\n]*)" do self.environment[name] = value end
  local host = self.host
  self.number = #host.children + 1
  host.children[self.number] = self
  self.session = server.new_session(self.number)
  self.session.number, self.session.child = self.number, self
  host:note { kind = "start", child = self, session = self.session, label = label ~= "" and label or nil }
  if host.at_start then host.at_start(self) end
end

takes["in"] = function(self, bytes)
  self.rest = self.rest .. bytes
  self.bytes = self.bytes + #bytes
  if not self.rest:find("\n", 1, true) then return end
  local from = 1
  for stop in self.rest:gmatch "()\n" do
    local line = self.rest:sub(from, stop - 1)
    from = stop + 1
    take_line(self, line)
  end
  self.rest = self.rest:sub(from)
end

function takes:eof()
  self.has_eof = true
  self.host:note { kind = "eof", child = self, session = self.session }
end

function takes:signal(name)
  table.insert(self.signals, name)
  self.host:note { kind = "signal", method = name, child = self }
end

function takes:done(what) self[what .. "_done"] = true end

local function accept(host)
  local self = setmetatable({ host = host, control = uv.new_pipe(false), inbox = "", rest = "", bytes = 0, lines = {}, signals = {} }, child)
  host.door:accept(self.control)
  host.peers[self] = true
  self.control:read_start(function(_, bytes)
    if not bytes then
      self.ended = true
      host.peers[self] = nil
      if not self.control:is_closing() then self.control:close() end
      for x in pairs(host.running) do
        if x.child == self then x:forget() end
      end
      host:note { kind = "end", child = self, session = self.session }
      return
    end
    self.inbox = self.inbox .. bytes
    while true do
      local kind, length, at = self.inbox:match "^(%S+) (%d+)\n()"
      if not kind or #self.inbox - at + 1 < tonumber(length) then return end
      local body = self.inbox:sub(at, at + tonumber(length) - 1)
      self.inbox = self.inbox:sub(at + tonumber(length))
      takes[kind](self, body)
    end
  end)
end

-- -- the server -------------------------------------------------------------------------------------------------------------------

local methods = {}

--- The processes that run now, in the order of their start.
function methods:alive()
  uv.run "nowait"
  local list = {}
  for _, one in ipairs(self.children) do
    if not one.ended then list[#list + 1] = one end
  end
  return list
end

--- Waits until exactly `count` processes run; returns them.
function methods:wait_alive(count, seconds)
  local function named() return ("%d processes; %d run"):format(count, #self:alive()) end
  return wait.for_fact(named, seconds or PATIENCE, function()
    local list = self:alive()
    return #list == count and list
  end)
end

--- Writes a line to all processes, or to that of one session.
function methods:push(text, only)
  for _, one in ipairs(self:alive()) do
    if only == nil or one.session == only then one:write(text .. "\n") end
  end
end

function methods:count_sessions() return #self:alive() end

function methods:close(fault)
  for peer in pairs(self.peers) do
    if not peer.control:is_closing() then peer.control:close() end
  end
  self.door:close()
  uv.run "nowait"
  uv.fs_unlink(self.path)
  uv.fs_rmdir(self.folder)
  if not fault then self:check_mistakes() end
end

--- `options` beside those of server.new: command (a function of the words of the plain command that returns others, to
--- start it through a chain).
function stdio.start(options)
  local self = server.new(options, methods)
  self.kind, self.children, self.peers = "stdio", {}, {}
  self.folder = assert(uv.fs_mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/upstream-XXXXXX"))
  self.path = self.folder .. "/socket"
  self.door = uv.new_pipe(false)
  assert(self.door:bind(self.path))
  assert(self.door:listen(511, function() accept(self) end))
  local words = { "/usr/bin/lua5.4", uv.cwd() .. "/spec/upstreams/child.lua", self.path }
  self.entry = { command = options.command and options.command(words) or words }
  return self
end

return stdio
