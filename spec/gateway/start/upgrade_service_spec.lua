-- An upgrade below a service manager: which process the manager follows, and what is left when that one ends.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local free_port = require "spec.helpers.free_port"
local knocking = require "spec.helpers.knocking"
local manager = require "spec.helpers.manager"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

-- A service, whose manager kills all of its processes when the main one ends, unless `spares`. Returns the manager and
-- the gateway.
local function start(options)
  options = upgrading.prepare(options)
  local m = manager.open(options)
  if not options.spares then m:command("group", "on") end
  if options.unit then options.unit(m) end
  return m, upgrading.of(m:start(), options.binary)
end

local function notes_about(m, what)
  local list = {}
  for _, note in ipairs(m:notes()) do
    if note:find(what) then list[#list + 1] = note:match "^%S+" end
  end
  return list
end

local function wait_gone(pids)
  wait.for_fact("the processes to end", 20, function()
    for _, pid in ipairs(pids) do
      if upgrading.lives(pid) then return false end
    end
    return true
  end)
end

-- The manager stops reading, so that the messages about `count` reloads wait, if no two reloads come at once.
local function deafen(m, g, count)
  m:deafen()
  for _ = 1, count do
    m:signal(1)
    g:status()
  end
end

describe("a reload of a service", function()
  -- A manager that has asked for a reload waits for the message about its beginning, then for that about its end.
  it("whose manager does not read its messages is told with its beginning and its end", function()
    local m <close>, g = start {}
    deafen(m, g, 100)
    local asked_us = uv.hrtime() // 1000
    deafen(m, g, 1)
    m:command "hear"
    wait.quietly(1) -- seconds: the gateway sends one of the waiting messages every 50 ms
    local notes = {}
    for _, note in ipairs(m:notes()) do
      if note:find "^RE" then notes[#notes + 1] = note end
    end
    assert.is_true(asked_us < tonumber(notes[#notes - 1]:match "^RELOADING=1 MONOTONIC_USEC=(%d+)"))
    assert.matches("^READY=1 ", notes[#notes])
    m:signal(15):wait "^ended "
  end)
end)

describe("an upgrade of a service", function()
  it("names the new main process to the manager, which then reports that it is ready", function()
    local m <close>, g = start {}
    g:must_upgrade()
    m:wait("^notify MAINPID=" .. g.pid .. " ")
    m:wait "^notify READY=1 "
    assert.same({ "READY=1", "MAINPID=" .. g.pid, "READY=1" }, notes_about(m, "^[RM][EA][AI][DN]"))
    wait_gone { g.pids[1] }
    assert.same({}, notes_about(m, "STOPPING"))
    m:signal(15):wait "^ended "
    assert.same({ "STOPPING=1" }, notes_about(m, "STOPPING"))
  end)

  it("whose manager does not read its messages is done a little later, and the manager follows once it reads", function()
    local m <close>, g = start { env = { SPEC_TIME_10000 = "500" } }
    -- a session, so that the first process lives on: its end would end the service
    local session <close> = g:client "2025-06-18"
    m:deafen()
    g:must_upgrade()
    assert.equal(g.pid, g:status().pid)
    session:result("tools/list", {})
    m:command "hear"
    m:wait("^notify MAINPID=" .. g.pid .. " ")
    m:signal(15):wait "^ended "
    wait_gone(g.pids)
  end)

  it("names the new main process after more messages than wait, and keeps the old one until then", function()
    local m <close>, g = start { env = { SPEC_TIME_2000 = "100", SPEC_TIME_10000 = "100" } }
    deafen(m, g, 100)
    g:must_upgrade()
    assert.same({ g.pids[1] }, g:older())
    wait.quietly(2) -- only the message that waits for the manager keeps the first process alive
    assert.same({ g.pids[1] }, g:older())
    m:command "hear"
    m:wait("^notify MAINPID=" .. g.pid .. " ")
    wait_gone { g.pids[1] }
    m:signal(15):wait "^ended "
  end)

  -- A commit that waits for the manager: the store has gone over, and the new process is not told yet that it is the
  -- newest one.
  local function commit_slowly()
    local m, g = start {
      spares = true, env = { SPEC_TIME_2000 = "100", SPEC_TIME_10000 = "60000" }, config = { store = { file = "store.db" } },
      scripts = { ["tools/count.lua"] = 'return tool { "Counts.", function() return store.incr "n" end }' },
    }
    local function count()
      local me <close> = g:client "2026-07-28"
      return me:result("tools/call", { name = "count", arguments = {} }).content[1].text
    end
    assert.equal("1", count())
    m:deafen()
    g:signal "sigusr2"
    local new = tonumber(g:wait_log "upgrade on trial".fields.pid)
    wait.for_fact("the new process to have the store's file", 20, function()
      local _, files = gateway.run_program("/bin/ls", { "-l", "/proc/" .. new .. "/fd" })
      return files:find("store.db", 1, true)
    end)
    return m, g, new, count
  end

  it("whose old process is killed when the store has gone over is served by the new one", function()
    local m <close>, g, new, count = commit_slowly()
    g:signal "sigkill"
    g:wait_log("taken over", { from = g.pid })
    g:wait_upgraded(1)
    assert.equal(new, g.pid)
    assert.equal("2", count())
    assert.equal(new, g:status().pid)
    m:command "hear"
    g:must_upgrade()
    assert.equal("3", count())
    g:signal "sigterm"
    wait_gone(g.pids)
  end)

  it("whose new process is killed when it has the store ends, and waits for nothing", function()
    local m <close>, g, new = commit_slowly()
    uv.kill(new, "sigkill")
    wait_gone { g.pid, new }
    m:wait "^ended "
  end)

  it("ends with its old process that is told to end when the store has gone over", function()
    local m <close>, g = start { spares = true, env = { SPEC_TIME_2000 = "100", SPEC_TIME_10000 = "4000" }, config = { limits = { drain = "1s" } } }
    m:deafen()
    g:signal "sigusr2"
    local new = tonumber(g:wait_log "upgrade on trial".fields.pid)
    wait.quietly(1) -- the store goes over in this time; no line says so before the commit
    g:signal "sigterm"
    wait_gone { g.pid, new }
  end)

  it("is done with a new process one of whose workers gets stuck when the store has gone over", function()
    local m <close>, g = start {
      workers = 2, env = { SPEC_TIME_2000 = "100", SPEC_TIME_10000 = "30000" },
      constants = { stuck_ms = 1000 }, config = { limits = { drain = "1s" }, scripts = { trust = "full" } },
      scripts = { ["tools/stick.lua"] = 'return tool { "Blocks its worker.", function() os.execute "sleep 4" return "done" end, timeout = 20 }' },
    }
    m:deafen()
    g:signal "sigusr2"
    g:wait_log "upgrade on trial"
    wait.quietly(1) -- the store goes over in this time; no line says so before the commit
    local client <close> = g:client "2026-07-28"
    client:open("tools/call", { name = "stick", arguments = {} })
    g:wait_log "thread stuck"
    wait.quietly(0.5) -- the new process may say that it does not feel well
    m:command "hear"
    g:wait_upgraded(1)
    wait.quietly(1)
    assert.is_true(upgrading.lives(g.pid))
    assert.equal(g.pid, g:status().pid)
    m:signal(15):wait "^ended "
  end)

  it("that fails in its trial leaves the main process, its sockets, store, schedules and notifications", function()
    -- The trial takes 8 s here: on a busy machine, the 1.9 s that the new process lives may end only after the usual 2
    -- s.
    local m <close>, g = start { env = { SPEC_TIME_2000 = "8000" }, scripts = {
      ["tools/count.lua"] = 'return tool { "Counts.", function() return store.incr "counted" end }',
      ["jobs/tick.lua"] = 'return job { "Ticks.", every = 1, function() store.incr "ticks" log.info "tick" end }',
    } }
    local me <close> = g:client "2025-06-18"
    local new = knocking.start(g.port, 4)
    for i, seconds in ipairs { "0.1", "1", "1.9" } do
      g:replace_by_trial("sleep " .. seconds .. "; kill -9 $$")
      local code = g:upgrade()
      assert.equal(1, code)
      new:wait(50)
      assert.equal(tostring(i), me:result("tools/call", { name = "count", arguments = {} }).content[1].text)
      local ticks = select(2, g:log():gsub("info  tick", ""))
      wait.for_fact("the next run of the job", 20, function() return select(2, g:log():gsub("info  tick", "")) > ticks end)
    end
    new:stop()
    assert.equal(0, new.refused, tostring(new.last))
    assert.same({}, notes_about(m, "^MAINPID"))
    assert.is_true(upgrading.lives(g.pid))
    m:signal(15):wait "^ended 0$"
  end)

  it("whose new process ends later leaves nothing of the earlier one, and the service starts again", function()
    -- the manager stores a socket of a fixed port
    local m <close>, g = start { config = { listen = "127.0.0.1:" .. free_port() } }
    local before = g.pid
    m:command("restart", "on")
    local _ <close> = g:client "2025-06-18" -- a session, for which the earlier process lives on
    g:must_upgrade()
    wait.quietly(1)
    assert.same({ before }, g:older())
    local new = knocking.start(g.port, 4)
    m:signal(9):wait "^ended "
    wait_gone { before, g.pid }
    m:wait_ready()
    new:wait(50)
    new:stop()
    assert.equal(0, new.refused, tostring(new.last))
  end)

  it("ends with all older processes, their sessions and calls when the service is stopped, or its manager ends the group", function()
    local scripts = { ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(60) end, timeout = 60 }' }
    for _, signal in ipairs { 15, 9 } do
      local m <close>, g = start { scripts = scripts, config = { limits = { drain = "1s" } } }
      local clients = {}
      for i = 1, 3 do
        clients[i] = g:client "2025-06-18"
        clients[i]:open("tools/call", { name = "hold", arguments = {} })
        g:wait_status(function(now) return now.gauges.requests_in_flight >= i end)
        g:must_upgrade()
      end
      assert.equal(3, #g:older())
      m:signal(signal):wait "^ended "
      wait_gone(g.pids)
      for _, client in ipairs(clients) do client:close() end
    end
  end)

  it("three times in a row keeps the sockets of a socket unit, and the signs of life", function()
    local m <close>, g = start {
      config = { listen = "systemd:mcp" }, env = { WATCHDOG_USEC = "200000" },
      unit = function(m) m:tcp "mcp" end,
    }
    local new = knocking.start(g.port, 4)
    for _ = 1, 3 do
      g:must_upgrade()
      m:wait("^notify MAINPID=" .. g.pid .. " ")
      for _ = 1, 5 do m:wait "^notify WATCHDOG=1 " end
      new:wait(50)
    end
    new:stop()
    assert.same({ 0, 0 }, { new.refused, new.lost }, tostring(new.last))
    m:signal(15):wait "^ended "
  end)
end)
