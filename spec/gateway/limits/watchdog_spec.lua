-- A thread whose loop does not turn any more is detected, logged and taken out of service, and the process still obeys
-- signals.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local blocking = require "spec.helpers.blocking"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/block.lua"] = blocking.tool,
  ["tools/ping.lua"] = 'return tool { "Answers.", function() return "pong" end }',
  ["tools/wait.lua"] = 'return tool { "Waits.", function() log.info "waits" sleep(60) end }',
}

local function start(options)
  options = options or {}
  return gateway.start {
    workers = options.workers or 2, scripts = scripts, env = options.env, constants = { stuck_ms = options.stuck or 500 },
    config = { listen = options.listen, scripts = { path = "scripts", trust = "full" },
      limits = { drain = options.drain or "500ms", call = { time = "1h", cpu = "1h" } } },
  }
end

local function make_pipe(g)
  local path = g.dir .. "/pipe"
  assert(os.execute("mkfifo '" .. path .. "'"))
  return path
end

-- Blocks the worker that serves a new connection: returns its client, and the stream of the call.
local function block(g)
  local me, before = g:client "2026-07-28", g:status().gauges.tasks
  local stream = blocking.open(g, me)
  -- the call has begun: a connection that the worker accepted before it gets no answer until the call ends
  g:wait_status(function(now) return now.gauges.tasks > before end, 10)
  return me, stream
end

local function ping(g)
  local me <close> = g:client "2026-07-28"
  return me:result("tools/call", { name = "ping" }).content[1].text
end

describe("a worker whose loop does not turn", function()
  it("is logged, and takes no connection: the other workers serve them all, also those that waited for it", function()
    local g <close> = start { workers = 3 }
    local me, stream = block(g)
    -- Some of these connections wait in the queue of the stuck worker's socket.
    local early = {}
    for i = 1, 30 do early[i] = g:connect() end
    local line = g:wait_log("thread stuck", nil, 10)
    assert.equal("error", line.level)
    assert.truthy(line.fields.thread:find "^worker %d$")
    assert.is_true(tonumber(line.fields.ms) >= 500)
    if not os.getenv "TSAN_OPTIONS" then -- ThreadSanitizer delivers no signal to a thread that waits in C
      assert.equal("a function of C, in tools/call block", line.fields.at)
    end
    for _, connection in ipairs(early) do
      assert.equal(404, connection:request({ path = "/nothing" }).status)
      connection:close()
    end
    for _ = 1, 40 do assert.equal("pong", ping(g)) end

    local health = g:admin "/healthz"
    assert.equal(503, health.status)
    assert.truthy(health.body:find(line.fields.thread .. " is stuck: its loop has not run for %d+ s"), health.body)
    local status = g:status()
    assert.equal(1, status.gauges.workers_stuck)
    assert.equal(1, status.counters.worker_stalls)
    assert.equal(line.fields.thread, status.stuck[1].thread)

    blocking.release(g)
    assert.equal("done", stream:answer(10).result.content[1].text)
    g:wait_log("thread recovered", { thread = line.fields.thread })
    assert.equal(200, g:admin("/healthz").status)
    me:close()
    -- The worker takes connections again: each worker blocks one of three calls.
    local blocked = {}
    for i = 1, 3 do
      blocked[i] = { block(g) }
      g:wait_status(function(now) return now.gauges.workers_stuck == i end, 10)
    end
    assert.equal(4, g:status().counters.worker_stalls)
    blocking.release(g, 3)
    g:wait_status(function(now) return now.gauges.workers_stuck == 0 end, 10)
    for _, one in ipairs(blocked) do
      one[2]:answer(10)
      one[1]:close()
    end
    assert.has_nothing_left(g)
  end)

  it("is reported with its tool, whatever function of C the tool is in", function()
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer delivers no signal to a thread that waits in C" end
    local waits = {
      program = 'os.execute("read line < " .. args.pipe)', output = 'io.popen("cat " .. args.pipe):read "a"', file = 'io.open(args.pipe):read "a"',
    }
    local own = {}
    for name, code in pairs(waits) do
      own["tools/" .. name .. ".lua"] = ("return tool { 'Blocks.', input = { pipe = t.string }, function(args) %s return 'done' end }"):format(
        (code:gsub("^io", "local got = io")))
    end
    local g <close> = gateway.start { workers = 1, scripts = own, constants = { stuck_ms = 300 },
      config = { scripts = { path = "scripts", trust = "full" }, limits = { drain = "500ms", call = { time = "1h", cpu = "1h" } } } }
    local pipe = make_pipe(g)
    for name in pairs(waits) do
      local me = g:client "2026-07-28"
      local stream = me:open("tools/call", { name = name, arguments = { pipe = pipe } })
      local place = "a function of C, in tools/call " .. name
      assert.matches("^worker %d$", g:wait_log("thread stuck", { at = place }, 10).fields.thread)
      assert.equal(place, g:status().stuck[1].at)
      assert(io.open(pipe, "w")):close()
      assert.equal("done", stream:answer(10).result.content[1].text)
      g:wait_status(function(now) return now.gauges.workers_stuck == 0 end)
      me:close()
    end
  end)
end)

describe("a connection that a worker accepted for another one, which is suspended then", function()
  it("is served all the same", function()
    if os.getenv "TSAN_OPTIONS" then return pending "ThreadSanitizer's build delays no thread" end
    local armed = os.tmpname()
    os.remove(armed)
    local g <close> = start { stuck = 8000, env = { LATE_HANDOVER = armed } }
    local me, stream = block(g)
    -- The other worker is held from now on until this one is found stuck: for about a quarter of that time. From
    -- half of it on the watchdog gives it no connections, and resets those that wait; the rest is for a machine that
    -- delays the watchdog's rounds.
    local since = g:status().uptime_ms
    g:wait_status(function(now) return now.uptime_ms > since + 6500 end, 10)
    assert(io.open(armed, "w")):close()
    local connections = {}
    for i = 1, 24 do connections[i] = g:connect() end
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 20)
    for _, connection in ipairs(connections) do
      assert.equal(404, connection:request({ path = "/nothing" }).status)
      connection:close()
    end
    blocking.release(g)
    stream:answer(10)
    me:close()
    os.remove(armed)
    assert.has_nothing_left(g)
  end)
end)

describe("the admin listener", function()
  it("answers while every worker is stuck; new connections are refused, not left to wait", function()
    local g <close> = start { workers = 1 }
    local me, stream = block(g)
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 10)
    assert.equal(503, g:admin("/healthz").status)
    assert.is_false(pcall(client.connect, g))
    blocking.release(g)
    assert.equal("done", stream:answer(10).result.content[1].text)
    me:close()
    assert.equal("pong", ping(g))
    g:wait_status(function(now) return now.gauges.workers_stuck == 0 end, 10)
    assert.equal(200, g:admin("/healthz").status)
    assert.has_nothing_left(g)
  end)
end)

describe("on a Unix socket", function()
  it("the other workers take all connections", function()
    local path = os.tmpname()
    os.remove(path)
    local g <close> = start { listen = { "127.0.0.1:0", "unix:" .. path } }
    local me, stream = block(g)
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 10)
    local dead = 0
    for _ = 1, 20 do
      local ok, response = pcall(client.request, path, { path = "/nothing" }, { seconds = 10 })
      if not ok or response.status ~= 404 then dead = dead + 1 end
    end
    assert.equal(0, dead)
    blocking.release(g)
    stream:answer(10)
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("SIGTERM", function()
  it("ends a process with a stuck worker a second after limits.drain, with code 1, and the log says which", function()
    local g = start { drain = "300ms" }
    local me = block(g)
    local other = g:client "2026-07-28"
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 10)
    g:signal "sigterm"
    local code, signal = g:wait_exit(10)
    assert.same({ 1, 0 }, { code, signal })
    assert.truthy(g:log():find('ended by force   thread="worker %d"'), g:log())
    me:close()
    other:close()
  end)

  it("twice ends it at once, for any limits.drain", function()
    local g = start { drain = "1h", stuck = 3600000 }
    local me = block(g)
    g:wait_status(function(now) return now.gauges.tasks == 1 end, 10)
    g:signal "sigterm"
    g:wait_log "draining"
    g:signal "sigterm"
    assert.equal(1, (g:wait_exit(10)))
    assert.truthy(g:log():find("stopping now", 1, true))
    me:close()
  end)

  it("waits for a worker whose loop turns again before that", function()
    local g = start { drain = "20s" }
    local me, stream = block(g)
    g:wait_status(function(now) return now.gauges.workers_stuck == 1 end, 10)
    g:signal "sigterm"
    g:wait_log "draining"
    blocking.release(g)
    assert.equal("done", stream:answer(10).result.content[1].text)
    assert.equal(0, (g:wait_exit(10)))
    me:close()
  end)
end)

describe("the main thread", function()
  local endless = "local n = 0\nwhile true do n = n + 1 end"

  it("that is stuck in a script that loads is logged with its line, and SIGTERM ends the process", function()
    local g = start { drain = "1h" }
    local pipe = make_pipe(g)
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/stuck.lua", "w"))
    file:write(('local pipe = io.open(%q, "r")\npipe:close()'):format(pipe))
    file:close()
    g:signal "sighup"
    g:wait_log("thread stuck", { thread = "main" }, 10)
    assert.equal("main", g:status().stuck[1].thread)
    assert.equal(1, g:status().gauges.main_stuck)
    assert.equal("pong", ping(g))
    assert.equal(200, g:admin("/healthz").status) -- all calls are served
    g:signal "sigterm"
    assert.equal(1, (g:wait_exit(10)))
  end)

  it("stops a reload of scripts that never end when SIGTERM comes, with code 0", function()
    local g = start { stuck = 1000 }
    for i = 1, 8 do
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/endless" .. i .. ".lua", "w"))
      file:write(endless)
    end
    g:signal "sighup"
    local line = g:wait_log("thread stuck", { thread = "main" }, 10)
    assert.truthy(line.fields.at:find "^scripts/tools/endless%d%.lua:2$", line.text)
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
    assert.is_nil(g:log():find("not reloaded", 1, true))
  end)

  it("ends at a SIGTERM that arrives while it starts, and goes on after a SIGHUP", function()
    local files = {}
    for i = 1, 8 do files["tools/endless" .. i .. ".lua"] = endless end
    local dir = gateway.prepare { scripts = files }
    local process = gateway.spawn(uv.fs_realpath(gateway.binary), { "run", "moonpool.yaml" }, dir, { cwd = dir })
    local g = setmetatable({ dir = dir, pid = process.pid, process = process }, gateway.running)
    local function status(name)
      local file <close> = io.open("/proc/" .. g.pid .. "/status")
      return file and file:read "a":match(name .. ":%s*(%x+)")
    end
    wait.for_fact("main to begin", 10, function() return (tonumber(status "SigBlk", 16) or 0) & 1 == 1 end)
    g:signal "sighup"
    wait.for_fact("the watchdog to run", 10, function() return tonumber(status "Threads") > 1 end)
    g:signal "sighup"
    g:signal "sigterm"
    assert.same({ 0, 0 }, { g:wait_exit(10) })
    assert.is_nil(g:log():find("endless", 1, true))
  end)
end)
