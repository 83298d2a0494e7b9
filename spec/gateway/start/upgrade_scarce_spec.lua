-- Upgrades where descriptors are missing: nothing of it stays once there are some again.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local MISSING <const> = "Too many open files"

-- Sets the soft limit of open files of the process so that it can open `spare` more.
local function leave(pid, spare)
  local used, limit = {}, 0
  local entries = assert(uv.fs_scandir("/proc/" .. pid .. "/fd"))
  for name in function() return uv.fs_scandir_next(entries) end do
    used[tonumber(name)] = true
  end
  while spare > 0 or used[limit] do
    spare = used[limit] and spare or spare - 1
    limit = limit + 1
  end
  assert(os.execute(("prlimit --pid %d --nofile=%d:"):format(pid, limit)))
end

describe("an upgrade without descriptors", function()
  it("of the running process succeeds once there are some, whatever was missing before", function()
    local g <close> = upgrading.start {}
    local seen = 0
    for spare = 1, 5 do -- the sockets between processes are opened one after the other
      leave(g.pid, spare)
      local code, _, err = g:upgrade()
      if code == 0 then break end
      assert.matches(MISSING, err, 1, true)
      seen = seen + 1
    end
    assert.is_true(seen > 0)
    leave(g.pid, 200)
    g:must_upgrade()
    assert.is_nil(g:log():find("no socket for other processes", 1, true))
  end)

  it("shows the older process once it has some", function()
    local g <close> = upgrading.start {}
    local first = g.pid
    local _ <close> = g:client "2025-06-18" -- a session, so that the first process lives on
    for spare = 1, 40 do
      leave(first, spare)
      local code = g:upgrade()
      if code == 0 or g:log():find("socket for other processes not opened", 1, true) then break end
    end
    leave(first, 200)
    if #g.pids == 1 then g:must_upgrade() end
    g:wait_status(function(now) return now.upgrade and now.upgrade[1] and now.upgrade[1].pid == first and now.upgrade[1].sessions == 1 end)
  end)

  it("for the links to older processes changes nothing", function()
    local g <close> = upgrading.start { env = { SPEC_TIME_2000 = "3000" } }
    local kept = {}
    for i = 1, 3 do -- three sessions, each of which keeps one process alive
      kept[i] = g:client "2025-06-18"
      kept[i].kept:close()
      kept[i].kept = nil
      g:must_upgrade()
    end
    -- The other processes ask the newest one, and leave these connections after 5 s: what they free is taken away again. If
    -- all of them go in the last moment, the store has no descriptors instead, and it is tried again.
    local links <const> = "cannot make links between the new process and the older ones: " .. MISSING
    local why
    for attempt = 1, 5 do
      local _, refused = g:log():gsub("not upgraded", "")
      local _, trials = g:log():gsub("upgrade on trial", "")
      g:signal "sigusr2"
      wait.for_fact("the trial", 20, function() return select(2, g:log():gsub("upgrade on trial", "")) > trials end)
      wait.for_fact("the end of attempt " .. attempt, 20, function()
        leave(g.pid, 2) -- two descriptors are left, and the upgrade needs six
        return select(2, g:log():gsub("not upgraded", "")) > refused
      end)
      leave(g.pid, 200)
      why = g:log():match '.*not upgraded +(why="[^"]+")'
      assert.matches(MISSING, why, 1, true)
      if why:find(links, 1, true) then break end
    end
    assert.matches(links, why, 1, true)
    for _ = 1, 2 do
      for _, one in ipairs(kept) do one:result("tools/list", {}) end
      g:must_upgrade()
    end
    for _, one in ipairs(kept) do one:close() end
  end)

  it("of an older process is the end of that one alone", function()
    -- a trial that is short: connections of the other processes to the first one, idle for 5 s, would leave it descriptors
    local g <close> = upgrading.start_quick { config = { limits = { drain = "1s" } } }
    local first = g.pid
    local _ <close> = g:client "2025-06-18" -- a session, so that the first process lives on
    g:must_upgrade()
    local kept <close> = g:client "2025-06-18"
    kept.kept:close()
    kept.kept = nil
    leave(first, 0) -- without a descriptor, the first process cannot take its link to the next one
    g:must_upgrade()
    g:wait_log("older process ended", { pid = first })
    wait.for_fact("the end of the first process", 20, function() return not upgrading.lives(first) end)
    kept:result("tools/list", {})
  end)

  it("of the new process changes nothing, unless that one can be reached by the others", function()
    local g <close> = upgrading.start {}
    local code, out, err
    for limit = 28, 80 do
      g:replace_by_script("ulimit -n " .. limit)
      code, out, err = gateway.exec({ "upgrade", "--admin", "127.0.0.1:" .. g.admin_port, "--json" }, { seconds = 90 })
      if code == 0 then break end
      assert.equal(g.pid, g:status().pid)
    end
    assert.equal(0, code, err)
    g:follow(tonumber(out:match '"pid":(%d+)'))
    local last = g:log():match ".*(info  upgrade begins.*)$"
    assert.is_nil(last:find("no socket for other processes", 1, true), last)
  end)
end)

describe("a limit of descriptors below what poll(2) takes", function()
  it("does not hinder the end of the gateway", function()
    local env = { LSAN_OPTIONS = "detect_leaks=0" } -- LeakSanitizer needs descriptors at the end
    local g <close> = gateway.start { env = env, config = { limits = { drain = "5s" } } }
    assert(os.execute(("prlimit --pid %d --nofile=3:"):format(g.pid)))
    g:stop()
  end)
end)

describe("an upgrade whose folder was removed", function()
  for what, command in pairs { ["as a whole"] = "rm -r '%s'", ["in part"] = "rm '%s'/*.mcp.sock" } do
    it(what .. " says so, and changes nothing", function()
      local temporary = gateway.new_folder()
      local g <close> = upgrading.start { env = { TMPDIR = temporary } }
      local _ <close> = g:client "2025-06-18" -- a session, so that the first process lives on
      g:must_upgrade()
      local _, name = gateway.run_program("/bin/ls", { temporary })
      local folder = temporary .. "/" .. name:match "moonpool%-hop%-%w+"
      assert(os.execute(command:format(folder)))
      local code, _, err = g:upgrade()
      assert.equal(1, code)
      assert.matches("the folder " .. folder .. ", in which the processes of the gateway have their sockets, was removed, or a part of it", err, 1, true)
      assert.matches("hint: restart the gateway", err, 1, true)
      local other <close> = g:client "2026-07-28"
      other:result("tools/list", {})
      g:stop()
      gateway.run_program("/bin/rm", { "-r", temporary })
    end)
  end
end)
