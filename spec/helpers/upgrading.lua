-- A gateway that is upgraded: it runs a copy of the binary in its folder, which a spec replaces. Its `pid` is that of
-- the newest process.
--   local g <close> = upgrading.start {} ; local code, out, err = g:upgrade() ; g:older() ; g:replace "#!/bin/sh\nexit 3\n"
local uv = require "luv"
local cjson = require "cjson.safe"
local children = require "spec.helpers.children"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local PATIENCE = 20

local upgrading = {}

local upgraded = setmetatable({}, { __index = gateway.running })
upgraded.__index = upgraded
upgraded.__close = gateway.running.__close

-- True while the process runs; one that waits for its parent to take its exit code does not.
function upgrading.lives(pid)
  local file = io.open("/proc/" .. pid .. "/stat", "rb")
  if not file then return false end
  local state = (file:read "a" or ""):match "%) (%a)"
  file:close()
  return state ~= nil and state ~= "Z" and state ~= "X"
end

-- Makes the folder with the copy: returns options for gateway.start or manager.open.
function upgrading.prepare(options)
  options = options or {}
  if options.tls then gateway.use_tls(options) end
  options.dir = options.dir or gateway.prepare(options)
  options.binary = options.dir .. "/bin/moonpool"
  uv.fs_mkdir(options.dir .. "/bin", 493)
  assert(uv.fs_copyfile(uv.fs_realpath(gateway.binary), options.binary))
  uv.fs_chmod(options.binary, 493)
  return options
end

-- A running gateway that has this program gets the methods of this file.
function upgrading.of(g, binary)
  g.binary, g.pids = binary, { g.pid }
  return setmetatable(g, upgraded)
end

-- `options` are those of gateway.start.
function upgrading.start(options)
  options = upgrading.prepare(options)
  return upgrading.of(gateway.start(options), options.binary)
end

-- Like upgrading.start, with a trial of 0.2 s instead of 2 s: for specs in which nothing happens during the trial. The
-- older process measures the time of the trial.
function upgrading.start_quick(options)
  options = options or {}
  options.env = options.env or {}
  options.env.SPEC_TIME_2000 = "200"
  return upgrading.start(options)
end

-- Puts another file at the path of the program, as a package does; without a text, the binary itself.
function upgraded:replace(text)
  local path = self.binary .. ".new"
  if text then
    local file <close> = assert(io.open(path, "wb"))
    file:write(text)
  else
    assert(uv.fs_copyfile(uv.fs_realpath(gateway.binary), path))
  end
  uv.fs_chmod(path, 493)
  assert(uv.fs_rename(path, self.binary))
end

-- A program that starts the binary with a change: `text` runs before it, in sh; "$@" are the arguments.
function upgraded:replace_by_script(text)
  self:replace("#!/bin/sh\n" .. text .. "\nexec '" .. uv.fs_realpath(gateway.binary) .. "' \"$@\"\n")
end

-- A program that serves, and during whose trial `text` runs in sh, where $$ is its process. The trial takes 2 s: what
-- is to happen in it waits for its beginning, and not for a time after the start, which a busy machine makes longer.
function upgraded:replace_by_trial(text)
  local _, before = self:log():gsub("upgrade on trial", "")
  self:replace_by_script(("(for i in $(seq 600); do [ $(grep -c 'upgrade on trial' '%s/stderr') -gt %d ] && break; sleep 0.1; done; %s) &"):format(
    self.dir, before, text))
end

-- The process with this id is one of the gateway's.
function upgraded:follow(pid)
  self.pids[#self.pids + 1] = pid
  self.pid = pid
  children.alive[pid] = true
end

-- Runs `moonpool upgrade`: its exit code, stdout and stderr.
function upgraded:upgrade(...)
  local code, out, err = gateway.exec({ "upgrade", "--admin", "127.0.0.1:" .. self.admin_port, ... }, { seconds = 90 })
  local answer = cjson.decode(out)
  local pid = type(answer) == "table" and answer.pid or out:match "^process (%d+) serves now"
  if code == 0 then self:follow(assert(tonumber(pid), out)) end
  return code, out, err
end

-- Upgrades, and fails the spec if that fails.
function upgraded:must_upgrade()
  local code, _, err = self:upgrade()
  if code ~= 0 then error(err .. "\nits log:\n" .. self:log(), 2) end
  return self.pid
end

-- Sends SIGUSR2 and waits for the commit.
function upgraded:must_upgrade_by_signal()
  local _, before = self:log():gsub("info  upgraded +pid=", "")
  return self:signal("sigusr2"):wait_upgraded(before + 1)
end

-- Waits until there were `times` upgrades; the process that serves now.
function upgraded:wait_upgraded(times)
  local pid = wait.for_fact(function() return "an upgrade; the log:\n" .. self:log() end, PATIENCE, function()
    local found, count = nil, 0
    for at in self:log():gmatch "info  upgraded +pid=(%d+)" do
      found, count = tonumber(at), count + 1
    end
    return count >= times and found
  end)
  self:follow(pid)
  return pid
end

function upgraded:is_alive()
  uv.run "nowait"
  return upgrading.lives(self.pid)
end

function upgraded:signal(name)
  uv.kill(self.pid, name)
  return self
end

-- The processes before the newest one that run.
function upgraded:older()
  local list = {}
  for _, pid in ipairs(self.pids) do
    if pid ~= self.pid and upgrading.lives(pid) then list[#list + 1] = pid end
  end
  return list
end

-- Waits until none of its processes runs.
function upgraded:wait_exit(seconds)
  wait.for_fact(function() return "all processes to end; the log:\n" .. self:log() end, seconds or PATIENCE, function()
    return not upgrading.lives(self.pid) and #self:older() == 0 and self.process.code ~= nil
  end)
  for _, pid in ipairs(self.pids) do children.alive[pid] = nil end
end

function upgraded:kill()
  for _, pid in ipairs(self.pids) do
    if upgrading.lives(pid) then uv.kill(pid, "sigkill") end
  end
  self:wait_exit()
  return self
end

-- -- clients that keep their connection -----------------------------------------------------------------------------------

local keeping = {}
keeping.__index = keeping

local PAUSE <const> = 1 -- milliseconds from an answer to the next request: without them, the clients would take a processor of their own
local ASK = "GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n"

-- One more request on the connection, or on a new one after an answer that closes it.
local function ask(self, one)
  if self.is_over then
    self.under_way = self.under_way - 1
    one.pause:close()
    return one.socket and one.socket:close()
  end
  one.text = ""
  if one.socket then return one.socket:write(ASK) end
  local socket = uv.new_tcp()
  one.socket = socket
  local function go_on() one.pause:start(PAUSE, 0, function() ask(self, one) end) end
  local function fail(why)
    self.failed, self.last, one.socket = self.failed + 1, why, nil
    socket:close(go_on)
  end
  socket:connect("127.0.0.1", self.port, function(err)
    if err then return fail(err) end
    socket:read_start(function(failed, bytes)
      if not bytes then return fail(failed or "end of file") end
      one.text = one.text .. bytes
      local head, body = one.text:match "^(.-\r\n\r\n)(.*)$"
      local length = head and tonumber(head:lower():match "content%-length: (%d+)")
      if not length or #body < length then return end
      self.answered = self.answered + 1
      if head:lower():find("connection: close", 1, true) then
        self.closed, one.socket = self.closed + 1, nil
        socket:read_stop()
        socket:close(go_on)
      else
        go_on()
      end
    end)
    socket:write(ASK)
  end)
end

-- `count` clients that ask again and again on kept connections.
function upgrading.keep(port, count)
  local self = setmetatable({ port = port, under_way = count, answered = 0, failed = 0, closed = 0 }, keeping)
  for _ = 1, count do ask(self, { pause = uv.new_timer() }) end
  return self
end

function keeping:wait(more)
  local from = self.answered
  wait.for_fact(function() return ("%d more answers; failed %d (%s)"):format(more, self.failed, tostring(self.last)) end, PATIENCE, function()
    return self.answered >= from + more
  end)
end

function keeping:stop()
  self.is_over = true
  wait.for_fact("the last clients", PATIENCE, function() return self.under_way == 0 end)
end

--- Whether a tool that used the store said that the owner of the store did not answer.
function upgrading.is_away(said) return said == "unavailable" or said == "unknown" end

-- A counter in the store that each call raises by one: returns a function that takes what a call has said, and fails if
-- the sum is wrong. A call whose store was away, since the machine stood still, may have counted or not.
function upgrading.counter()
  local counted, away = 0, 0
  return function(said)
    if upgrading.is_away(said) then
      away = away + 1
      return
    end
    counted = counted + 1
    local more = tonumber(said) - counted
    assert(more >= 0 and more <= away, ("the counter is %s, not %d"):format(said, counted))
  end
end

upgrading.client = client

return upgrading
