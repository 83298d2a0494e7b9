-- The process obeys signals and serves, whichever descriptors it was started with: pipes that are full or have no
-- reader, a full disk, descriptors that are closed or used up. It does not remove the Unix socket of its successor.
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local client = require "spec.helpers.client"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/say.lua"] = [[return tool { "Logs a lot.", function()
    for i = 1, 3000 do log.info("line " .. i % 100, { text = ("x"):rep(400) }) end
    return "said"
  end }]],
  ["tools/wait.lua"] = 'return tool { "Waits.", function() log.info "waits" sleep(1.5) return "waited" end }',
  ["tools/ping.lua"] = 'return tool { "Answers.", function() return "pong" end }',
}

local function call(g, name)
  local me <close> = g:client "2026-07-28"
  return me:result("tools/call", { name = name }, 20).content[1].text
end

-- Starts the gateway by a shell, which can close and redirect descriptors: `redirect` follows the command.
local function start_by_shell(dir, redirect, args)
  local ready = uv.new_pipe(false)
  local line = ('exec "%s" run moonpool.yaml --ready-fd 3 %s %s'):format(uv.fs_realpath(gateway.binary), args or "", redirect)
  local process = gateway.spawn("/bin/sh", { "-c", line }, dir, { cwd = dir }, ready)
  local g = setmetatable({ dir = dir, pid = process.pid, process = process }, gateway.running)
  local text, over = "", false
  ready:read_start(function(_, bytes)
    if bytes then text = text .. bytes else over = true end
  end)
  wait.for_fact("the gateway to be ready", 20, function() return over end)
  ready:close()
  g.ready = text
  g.port = tonumber(text:match "mcp=http://[^:]*:(%d+)/")
  g.url = text:match "mcp=(%S+)"
  g.admin_port = tonumber(text:match "admin=http://[^:]*:(%d+)")
  assert.truthy(g.port, "it ended with " .. tostring(process.code) .. ": " .. g:log())
  return g
end

local function fifo(dir, name)
  assert(os.execute(("mkfifo '%s/%s'"):format(dir, name)))
  return dir .. "/" .. name
end

describe("a log that no process reads", function()
  it("delays neither serving nor, for more than a second, the end of the process, and lost lines are counted", function()
    local dir = gateway.prepare { scripts = scripts }
    local path = fifo(dir, "log")
    local reader = assert(uv.fs_open(path, "r+", 0)) -- opens the FIFO, and never reads from it
    local g = start_by_shell(dir, "2>log")
    for _ = 1, 3 do assert.equal("said", call(g, "say")) end
    g:wait_status(function(now) return now.counters.dropped.log > 0 end)
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
    uv.fs_close(reader)
  end)

  it("on a full disk loses lines, which are counted", function()
    local g = start_by_shell(gateway.prepare { scripts = scripts }, "2>/dev/full")
    assert.equal("said", call(g, "say"))
    g:wait_status(function(now) return now.counters.dropped.log > 1000 end)
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
  end)

  it("whose reader has closed the pipe does not kill the process by SIGPIPE", function()
    local dir = gateway.prepare { scripts = scripts }
    local path = fifo(dir, "log")
    local reader = assert(uv.fs_open(path, "r+", 0))
    local g = start_by_shell(dir, "2>log")
    uv.fs_close(reader)
    assert.equal("said", call(g, "say"))
    g:wait_status(function(now) return now.counters.dropped.log > 1000 end)
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
  end)
end)

describe("log.audit as a pipe", function()
  local function config() return { log = { audit = "audit" } } end

  it("without a reader is an error at start that names the cause", function()
    local dir = gateway.prepare { config = config() }
    fifo(dir, "audit")
    local code, _, err = gateway.exec({ "run", "moonpool.yaml" }, { cwd = dir, seconds = 10 })
    assert.equal(1, code)
    assert.truthy(err:find("audit cannot be opened: no process reads this FIFO", 1, true), err)
    assert.truthy(err:find("hint: start the process that reads the FIFO first", 1, true), err)
  end)

  it("whose reader has closed its end delays no SIGHUP: reloads and signals go on, and the lost lines are counted", function()
    local dir = gateway.prepare { scripts = scripts, config = config() }
    local reader = assert(uv.fs_open(fifo(dir, "audit"), "r+", 0))
    local g <close> = gateway.start { dir = dir }
    assert.equal("pong", call(g, "ping"))
    uv.fs_close(reader)
    g:signal "sighup"
    assert.truthy(g:wait_log("audit file not reopened").fields.why:find("no process reads this FIFO", 1, true))
    assert.equal("pong", call(g, "ping"))
    g:wait_status(function(now) return now.counters.dropped.audit > 0 end)
    assert.equal("done", g:admin("/reload", "POST").status == 200 and "done")
  end)

  it("that is full shows in a gauge how many lines wait, until they are read", function()
    local dir = gateway.prepare { scripts = scripts, config = config() }
    local reader <const> = assert(uv.fs_open(fifo(dir, "audit"), "r+", 0))
    local g <close> = gateway.start { dir = dir }
    local me <close> = g:client "2026-07-28"
    local function waiting() return g:status().gauges.lines_waiting.audit end
    assert.equal(0, waiting())
    for _ = 1, 800 do me:result("tools/call", { name = "ping" }) end
    assert.is_true(waiting() > 100)
    wait.for_fact("no line to wait", 20, function()
      if waiting() == 0 then return true end
      uv.fs_read(reader, 65536)
    end)
    uv.fs_close(reader)
  end)

  it("that is full does not keep the process from ending; the log says how many lines are lost", function()
    local dir = gateway.prepare { scripts = scripts, config = config() }
    local reader = assert(uv.fs_open(fifo(dir, "audit"), "r+", 0))
    local g <close> = gateway.start { dir = dir }
    local me <close> = g:client "2026-07-28"
    for _ = 1, 800 do me:result("tools/call", { name = "ping" }) end -- more than the 64 KiB of a pipe
    g:signal "sigterm"
    assert.equal(0, (g:wait_exit(10)))
    assert.is_true(tonumber(g:wait_log("audit not written").fields.lines) > 0)
    uv.fs_close(reader)
  end)
end)

describe("a gateway without stdin, stdout or stderr", function()
  it("opens nothing else as descriptor 0, 1 or 2", function()
    for _, closed in ipairs { "2>&-", "<&- >&- 2>&-", ">&-" } do
      local g = start_by_shell(gateway.prepare { scripts = scripts }, closed)
      for fd in closed:gmatch "[<>]" do
        local number = fd == "<" and 0 or closed:find("2>&-", 1, true) and 2 or 1
        assert.equal("/dev/null", uv.fs_readlink(("/proc/%d/fd/%d"):format(g.pid, number)))
      end
      assert.equal("said", call(g, "say"))
      g:signal "sigterm"
      assert.equal(0, (g:wait_exit(10)))
    end
  end)
end)

describe("a reload that lacked descriptors", function()
  it("is tried again a second later, without another save", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local me <close> = g:client "2026-07-28"
    me:result("tools/list", {})
    local function limit(count)
      assert.equal(0, (gateway.run_program("/usr/bin/prlimit", { "--pid", tostring(g.pid), "--nofile=" .. count .. ":" })))
    end
    limit(3) -- each new descriptor is refused, whichever are open
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/new.lua", "w"))
    file:write 'return tool { "New.", function() return "new" end }'
    file:close()
    g:signal "sighup"
    local _ = g:wait_log("config refused", nil, 10)
    limit(1000)
    g:wait_log("reloaded", nil, 10)
    assert.equal("new", me:result("tools/call", { name = "new" }).content[1].text)
  end)
end)

describe("a Unix socket", function()
  it("is removed when listening stops, but the socket of a successor at this path stays", function()
    local path = os.tmpname()
    os.remove(path)
    local function start() return gateway.start { scripts = scripts, config = { listen = { "127.0.0.1:0", "unix:" .. path } } } end
    local old = start()
    local me = old:client "2026-07-28"
    local stream = me:open("tools/call", { name = "wait" })
    old:wait_log "waits"
    old:signal "sigterm"
    old:wait_log "draining"
    wait.for_fact("the socket to be gone", 10, function() return not uv.fs_stat(path) end)
    local new <close> = start()
    assert.equal("waited", stream:answer(10).result.content[1].text)
    me:close()
    assert.equal(0, (old:wait_exit(10)))
    assert.truthy(uv.fs_stat(path))
    assert.equal(404, client.request(path, { path = "/nothing" }).status)
    assert.equal("pong", call(new, "ping"))
  end)
end)

describe("a signal while the gateway drains", function()
  it("has no effect if it is SIGHUP, and ends the process if it is a late second SIGTERM", function()
    local g = gateway.start { scripts = scripts }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", { name = "wait" })
    g:wait_log "waits"
    g:signal "sigterm"
    g:wait_log "draining"
    g:signal "sighup"
    assert.equal("waited", stream:answer(10).result.content[1].text)
    assert.equal(0, (g:wait_exit(10)))
    me:close()
    assert.is_false(pcall(client.connect, g))
  end)
end)
