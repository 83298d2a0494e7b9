-- lane: first
-- Upgrades while something goes wrong at a bad moment: processes that stand still or are killed, requests and signals
-- at once, no descriptors. The binary for specs has another time for the trial where SPEC_TIME_2000 says so
-- (other_times.c).
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local knocking = require "spec.helpers.knocking"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local TRIAL <const> = "SPEC_TIME_2000"
-- a trial of 5 s, so that a spec has time to do something during it on a busy machine
local LONG <const> = { [TRIAL] = "5000" }

describe("a new process", function()
  it("that stands still in its trial and is killed at the hand-over leaves all with the old one", function()
    local g <close> = upgrading.start { env = LONG, scripts = { ["tools/count.lua"] = 'return tool { "Counts.", function() return store.incr "n" end }' } }
    local me <close> = g:client "2025-06-18"
    local function count() return me:result("tools/call", { name = "count", arguments = {} }).content[1].text end
    assert.equal("1", count())
    g:signal "sigusr2"
    local pid = tonumber(g:wait_log "upgrade on trial".fields.pid)
    uv.kill(pid, "sigstop")
    wait.quietly(6) -- seconds, after which the store begins to go over, or soon will
    uv.kill(pid, "sigkill")
    g:wait_log "not upgraded"
    assert.equal("2", count())
    assert.equal(g.pid, g:status().pid)
    g:must_upgrade()
    assert.equal("3", count())
  end)

  it("that stands still is given up, and clients that connect wait meanwhile", function()
    local g <close> = upgrading.start { env = LONG }
    g:signal "sigusr2"
    local pid = tonumber(g:wait_log "upgrade on trial".fields.pid)
    uv.kill(pid, "sigstop")
    local new = knocking.start(g.port, 2)
    g:wait_log("not upgraded", { why = "the store was not handed over: store: not handed over: the other process does not answer" }, 60)
    new:wait(20)
    new:stop()
    assert.equal(0, new.refused, tostring(new.last))
    assert.is_false(upgrading.lives(pid))
    g:must_upgrade()
  end)

  it("that is killed at the hand-over leaves a listener that accepts, also where there was no room for more connections", function()
    local g <close> = upgrading.start { workers = 1, env = { [TRIAL] = "500" }, config = { limits = { connections = 2 } } }
    local held <const> = { g:connect(), g:connect() }
    g:wait_status(function(status) return status.gauges.connections >= 2 end)
    local new = knocking.start(g.port, 1)
    g:wait_status(function(status) return status.counters.refused.connections > 0 end)
    g:signal "sigusr2"
    local pid = tonumber(g:wait_log "upgrade on trial".fields.pid)
    uv.kill(pid, "sigstop")
    wait.quietly(3) -- seconds: soon no listener accepts, until the store has gone over
    uv.kill(pid, "sigkill")
    g:wait_log "not upgraded"
    for _, connection in ipairs(held) do connection:close() end
    new:wait(10)
    new:stop()
    assert.equal(0, new.refused, tostring(new.last))
  end)

  it("one of whose workers gets stuck in its trial is given up", function()
    local g <close> = upgrading.start {
      workers = 2, env = { [TRIAL] = "20000" }, constants = { stuck_ms = 1000 }, config = { limits = { drain = "1s" }, scripts = { trust = "full" } },
      scripts = { ["tools/stick.lua"] = 'return tool { "Blocks its worker.", function() os.execute "sleep 4" return "done" end, timeout = 20 }' },
    }
    g:signal "sigusr2"
    local pid = tonumber(g:wait_log "upgrade on trial".fields.pid)
    local client <close> = g:client "2026-07-28"
    client:open("tools/call", { name = "stick", arguments = {} })
    assert.matches("the new process is not well: worker %d is stuck", g:wait_log("not upgraded", nil, 30).fields.why)
    assert.is_false(upgrading.lives(pid))
    assert.equal(g.pid, g:status().pid)
  end)
end)

describe("an old process", function()
  it("that stands still in the trial goes on with it afterwards", function()
    local g <close> = upgrading.start {}
    g:signal "sigusr2"
    local pid = tonumber(g:wait_log "upgrade on trial".fields.pid)
    local new = knocking.start(g.port, 2)
    g:signal "sigstop"
    new:wait(20)
    wait.quietly(3)
    g:signal "sigcont"
    g:wait_log("upgraded", { pid = pid })
    g:follow(pid)
    new:wait(20)
    new:stop()
    assert.equal(0, new.refused, tostring(new.last))
    assert.equal(pid, g:status().pid)
  end)

  it("that is killed leaves no new one behind, in its start and in its trial", function()
    for _, event in ipairs { "upgrade begins", "upgrade on trial" } do
      local g = upgrading.start { env = LONG }
      g:signal "sigusr2"
      local pid = tonumber(g:wait_log(event).fields.pid)
      g:follow(pid)
      uv.kill(g.pids[1], "sigkill")
      g:wait_exit(30)
      gateway.run_program("/bin/rm", { "-r", g.dir })
    end
  end)
end)

describe("upgrades that are asked for", function()
  -- Starts the command, and returns what it will have printed.
  local function ask(g)
    return gateway.spawn(uv.fs_realpath(gateway.binary), { "upgrade", "--json", "--admin", "127.0.0.1:" .. g.admin_port }, gateway.new_folder(), {})
  end

  -- The new process, or nil and the reason.
  local function read(one)
    wait.for_fact("the command to end", 60, function() return one.code end)
    local out <close> = assert(io.open(one.dir .. "/stdout", "rb"))
    local err <close> = assert(io.open(one.dir .. "/stderr", "rb"))
    local pid, why = math.tointeger(tonumber(out:read "a":match '"pid":(%d+)')), err:read "a"
    gateway.run_program("/bin/rm", { "-r", one.dir })
    return pid, why
  end

  it("twice at once are one, or follow each other, and both are answered", function()
    local g <close> = upgrading.start { env = LONG }
    local first = ask(g)
    g:wait_log "upgrade on trial"
    local second = ask(g)
    local one = read(first)
    local two, why = read(second) -- on a busy machine the second request arrives after the trial
    g:follow(assert(one))
    if two and two ~= one then g:follow(two) end
    assert.equal(0, first.code)
    assert.is_true(second.code == 0 or why:find("is the newest one", 1, true) ~= nil, why)
    assert.equal(g.pid, g:status().pid)
    assert.equal(two and two ~= one and 2 or 1, select(2, g:log():gsub("upgrade begins", "")))
  end)

  it("by hundreds of signals follow each other, and no connection is refused", function()
    local g <close> = upgrading.start { env = { [TRIAL] = "200" } }
    local new = knocking.start(g.port, 2)
    local seen = {}
    for _ = 1, 300 do
      uv.kill(g.pid, "sigusr2")
      for pid in g:log():gmatch "info  upgraded +pid=(%d+)" do
        if not seen[pid] then
          seen[pid] = true
          g:follow(tonumber(pid))
        end
      end
      wait.quietly(0.01)
    end
    wait.for_fact("the last upgrade", 60, function()
      local begun, done = select(2, g:log():gsub("upgrade begins", "")), 0
      for pid in g:log():gmatch "info  upgraded +pid=(%d+)" do
        done = done + 1
        if not seen[pid] then
          seen[pid] = true
          g:follow(tonumber(pid))
        end
      end
      return begun == done and g:status().pid == g.pid
    end)
    new:wait(20)
    new:stop()
    assert.same({ 0, 0 }, { new.refused, new.lost }, tostring(new.last))
  end)

  it("with few descriptors left are done, or fail and change nothing, and with enough are done", function()
    local g <close> = upgrading.start { workers = 1 }
    local new, failed = knocking.start(g.port, 1), 0
    for more = 2, 26, 3 do
      local limit = g:fds() + more
      gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--nofile=" .. limit .. ":1024" })
      local code = g:upgrade()
      failed = failed + code
      -- Raises the limit before any request waits for an answer: sockets of the first upgrade stay open for the next
      -- one, and may have taken the last descriptors.
      gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--nofile=1024:1024" })
      new:wait(10)
    end
    new:stop()
    assert.is_true(failed > 0)
    assert.equal(0, new.refused, tostring(new.last))
    assert.equal(g.pid, g:status().pid)
    g:must_upgrade()
  end)
end)
