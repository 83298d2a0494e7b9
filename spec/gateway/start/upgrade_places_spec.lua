-- Where an upgrade is possible and where it is refused: this depends on the program that has started the process, and
-- on what else ends or is started anew when the process ends.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  uv.fs_chmod(path, 493)
end

-- A script that runs a command, passes SIGTERM on to it, and ends when it has ended.
local WAITS = "#!/bin/sh\n%s &\nexec 3>&-\ntrap 'kill -15 $!' TERM\nwait $!\nwait $!\n"
-- The first process of a namespace of its own, as in a container. SIGTERM is for the gateway, whose id outside is in
-- the file `pid`.
local ALONE = [[#!/bin/sh
mkfifo ready
unshare --pid --fork --mount-proc %s 3>ready &
head -n 1 <ready >&3
exec 3>&-
trap 'kill -15 $(cat pid)' TERM
wait $!
wait $!
]]

-- A gateway that the program `name` of the folder `dir` has started, which is a script with this text; its %s is the
-- command.
local function start_below(dir, name, text)
  local options = upgrading.prepare {}
  write(dir .. "/" .. name, text:format(options.binary .. ' "$@"'))
  local binary = options.binary
  options.binary = dir .. "/" .. name
  return upgrading.of(gateway.start(options), binary)
end

-- The upgrade is refused in one line with a hint, nothing is begun, and the gateway serves on.
local function assert_refused(g, why)
  local before = g:status().pid
  local code, out, err = g:upgrade()
  assert.same({ 1, "" }, { code, out })
  assert.equal("moonpool: " .. why, err:match "^[^\n]+")
  assert.matches("^[^\n]+\n  hint: [^\n]+\n$", err)
  g:signal "sigusr2" -- sends the signal to the program that started the gateway; the signal may end that program
  assert.is_nil(g:log():find("upgrade begins", 1, true))
  assert.equal(before, g:status().pid)
end

local function may_unshare()
  local code = gateway.run_program("/bin/sh", { "-c", "exec unshare --pid --fork --mount-proc /bin/true" })
  return code == 0
end

describe("an upgrade is refused", function()
  local dir
  before_each(function() dir = gateway.new_folder() end)
  after_each(function() gateway.run_program("/bin/rm", { "-r", dir }) end)

  for _, name in ipairs { "tini", "docker-init", "dumb-init", "catatonit", "runsv", "s6-supervise", "supervisord" } do
    it("below " .. name, function()
      local g <close> = start_below(dir, name, WAITS)
      g.signal = function(self, signal) return signal ~= "sigusr2" and gateway.running.signal(self, signal) end
      assert_refused(g, name .. " has started this process, and follows only the process that it has started")
    end)
  end
end)

describe("in a container an upgrade", function()
  local dir
  before_each(function() dir = gateway.new_folder() end)
  after_each(function() gateway.run_program("/bin/rm", { "-r", dir }) end)

  -- Starts it, and finds the id that the gateway has outside of the namespace.
  local function start(first)
    local g = start_below(dir, "container", ALONE:format(first))
    local text = wait.for_fact("the process outside", 20, function()
      local _, out = gateway.run_program("/usr/bin/pgrep", { "-f", "^" .. g.binary .. " run" })
      return out:match "%d+" and out
    end)
    write(g.dir .. "/pid", text:match "%d+" .. "\n")
    g.signal = function(self, signal)
      if signal ~= "sigusr2" then return gateway.running.signal(self, signal) end
      uv.kill(tonumber((text:match "%d+")), signal)
    end
    return g
  end

  it("of the first process is refused", function()
    if not may_unshare() then return pending "this user may make no namespaces" end
    local g <close> = start "%s"
    assert.equal(1, g:status().pid)
    assert_refused(g, "this is process 1 of a container, which ends with it")
    g:wait_log("upgrade refused", { why = "this is process 1 of a container, which ends with it" })
  end)

  it("of a child of the first process, a shell, is refused", function()
    if not may_unshare() then return pending "this user may make no namespaces" end
    write(dir .. "/entrypoint", '#!/bin/sh\n"$@"\necho over\n')
    local g <close> = start(dir .. "/entrypoint %s")
    assert.not_equal(1, g:status().pid)
    assert_refused(g, "this process is a child of entrypoint, process 1 of a container, which may end when it ends")
  end)

  it("of a process whose parent has ended, and which the first process has adopted, is done", function()
    if not may_unshare() then return pending "this user may make no namespaces" end
    write(dir .. "/between", ('#!/bin/sh\n"$@" &\nexec 3>&-\nwhile [ ! -e %s/leave ]; do sleep 0.1; done\n'):format(dir))
    write(dir .. "/entrypoint", ('#!/bin/sh\n%s/between "$@"\necho adopted\nwhile [ ! -e %s/over ]; do sleep 0.1; done\n'):format(dir, dir))
    local g = start(dir .. "/entrypoint %s")
    write(dir .. "/leave", "")
    wait.for_fact("the parent to end", 20, function()
      local out <close> = assert(io.open(g.dir .. "/stdout", "rb"))
      return out:read "a":find("adopted", 1, true)
    end)
    local code, out, err = gateway.exec { "upgrade", "--admin", "127.0.0.1:" .. g.admin_port }
    write(dir .. "/over", "") -- ends process 1 of the namespace, and with it all of its processes
    assert.equal(0, code, err)
    assert.matches("serves now", out, 1, true)
    wait.for_fact("the container to end", 20, function() return g.process.code end)
    gateway.run_program("/bin/rm", { "-r", g.dir })
  end)
end)

describe("an upgrade of a child of a shell", function()
  for where, tini in pairs { [""] = false, [" that tini has started"] = true } do
    it("is done" .. where .. ", the new process is printed, and done again when the shell has ended", function()
      local dir = gateway.new_folder()
      local text = WAITS
      if tini then
        write(dir .. "/between", "#!/bin/sh\n\"$@\" &\nexec 3>&-\nwait $!\n")
        text = WAITS:format(dir .. "/between %s")
      end
      local g <close> = start_below(dir, tini and "tini" or "shell", text)
      local pid = math.tointeger(g:status().pid)
      g.process.pid, g.pids[1] = pid, pid
      local code, out, err = g:upgrade()
      assert.equal(0, code, err)
      assert.matches("^process " .. g.pid .. " serves now, version [^\n]+\nprocess " .. pid .. ", version ", out)
      assert.matches("what started process " .. pid .. ", as a shell, does not know the new one", out, 1, true)
      wait.for_fact("the shell to end", 20, function() return g.process.code end)
      g:must_upgrade()
      gateway.run_program("/bin/rm", { "-r", dir })
    end)
  end

  it("follows the commit of another one if SIGUSR2 reaches the new process in its trial", function()
    local g <close> = upgrading.start {}
    g:signal "sigusr2"
    local first = tonumber(g:wait_log "upgrade on trial".fields.pid)
    wait.quietly(0.5)
    uv.kill(first, "sigusr2")
    g:follow(first)
    local second = wait.for_fact("the next trial", 20, function()
      for _, line in ipairs(g:log_lines()) do
        if line.event == "upgrade on trial" and tonumber(line.fields.pid) ~= first then return tonumber(line.fields.pid) end
      end
    end)
    g:follow(second)
    wait.for_fact("the second commit", 20, function() return g:log():find("upgraded +pid=" .. second) end)
    assert.equal(second, g:status().pid)
  end)
end)
