-- A crash leaves one line in the log, and the process ends by its signal (core/telemetry/crash.h).
local uv = require "luv"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local SEGV <const>, ABRT <const>, BUS <const>, ILL <const> = 11, 6, 7, 4

local is_sanitized = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"
local RELEASE <const> = "build/release/moonpool"
local preload = not is_sanitized and { LD_PRELOAD = uv.fs_realpath(gateway.binary:match "^(.*)/[^/]*$" .. "/crashing.so") } or nil

local scripts = {
  ["tools/crash.lua"] = [[
--- Crash as `how` says.
---@param how string
return function(how)
  log.info "crashes now" if how ~= "hang" then sleep(0.5) end -- in which the log's thread writes
  return ("crash:" .. how) < "x" and "no" or "yes"
end]],
  ["tools/file.lua"] = 'return tool { "Reads.", function() return fs.read "data/a.txt" end }',
  ["tools/rows.lua"] = [[return tool { "Asks.", function()
  local db = sqlite.open "data/rows.db"
  db:one "select 1"
  log.info "opened"
  sleep(60)
  db:close()
end }]],
  ["tools/program.lua"] = 'return tool { "Runs.", function() return exec { "sh", "-c", "kill -SEGV $$" }.signal end }',
}

local function start(options)
  options = options or {}
  local config = { limits = { call = { cpu = "60s" } }, scripts = { allow = options.allow } }
  for key, value in pairs(options.config or {}) do config[key] = value end
  return gateway.start {
    workers = options.workers or 1, scripts = scripts, config = config, files = { ["data/a.txt"] = "a" }, env = preload,
    constants = { stuck_ms = 60000 },
  }
end

-- Sends the signal to the thread of this name by tgkill: no program does that.
local function kill_thread(pid, name, signal)
  local function find()
    local tasks = uv.fs_scandir(("/proc/%d/task"):format(pid))
    for tid in function() return uv.fs_scandir_next(tasks) end do
      local file <close> = io.open(("/proc/%d/task/%s/comm"):format(pid, tid))
      if file and file:read "l" == name then return tid end
    end
  end
  local tid = wait.for_fact("thread " .. name, 10, find)
  local tgkill = io.popen("uname -m"):read "l" == "x86_64" and 234 or 131
  assert.equal(0, (gateway.run_program("/usr/bin/perl", { "-e", ("exit(syscall(%d, %d, %d, %d) != 0)"):format(tgkill, pid, tid, signal) })))
end

-- Waits for the end of the gateway by `signal`; returns the line about the crash.
local function ended(g, signal)
  local _, by = g:wait_exit(10)
  g.stopped = true
  assert.equal(signal, by, g:log())
  local found
  for _, line in ipairs(g:log_lines()) do
    if line.event == "crashed" then
      assert.is_nil(found, g:log())
      found = line
    end
  end
  assert.is_truthy(found, "no line about the crash:\n" .. g:log())
  assert.equal("error", found.level)
  assert.equal(tostring(signal), found.fields.signal)
  return found
end

-- A call whose answer is not awaited.
local function call(g, name, arguments)
  local c = g:client "2026-07-28"
  c:open("tools/call", { name = name, arguments = arguments })
  return c
end

local function has_function(binary, line, name)
  local names = {}
  for place in (line.fields.pc .. " " .. (line.fields.frames or "")):gmatch "%S+" do
    if place:find "^0x" then
      names[#names + 1] = select(2, gateway.run_program("/usr/bin/addr2line", { "-i", "-f", "-e", binary, place }))
    end
  end
  assert.truthy(table.concat(names):find(name), line.text .. "\n" .. table.concat(names))
end

describe("a crash", function()
  if is_sanitized then return pending "the sanitizers report crashes in their own way" end

  for how, expected in pairs {
    null = { signal = SEGV, why = "SIGSEGV", address = "0x0" },
    overflow = { signal = SEGV, why = "SIGSEGV" },
    jump = { signal = SEGV, why = "SIGSEGV", address = "0x0", pc = "unknown+0x0" },
    trap = { signal = ILL, why = "SIGILL" },
    abort = { signal = ABRT, why = "SIGABRT" },
  } do
    it(("is logged with its place and its call, and ends the process by its signal: %s"):format(how), function()
      local g <close> = start()
      local c <close> = call(g, "crash", { how = how })
      local line = ended(g, expected.signal)
      local fields = line.fields
      for key, value in pairs(expected) do assert.equal(tostring(value), fields[key], key .. ": " .. line.text) end
      assert.equal("worker 1", fields.thread)
      assert.equal("tools/call", fields.method)
      assert.equal("crash", fields.name)
      assert.equal("scripts/tools/crash.lua:5", fields.at)
      -- the log has the line "crashes now" of the same call before the crash
      assert.equal(g:wait_log("crashes now").fields.call, fields.call)
      assert.is_nil(line.text:find("crash:" .. how, 1, true)) -- the line shows no argument of the call
      local id = select(2, gateway.run_program("/usr/bin/readelf", { "-n", uv.fs_realpath(gateway.binary) })):match "Build ID: (%x+)"
      assert.equal(id, fields.build)
      assert.matches(how == "jump" and "^crashing%.so%+0x%x+$" or "%+0x%x+ ", fields.frames)
      if how == "abort" then
        assert.equal(tostring(g.pid), fields.sender)
      end
      if how ~= "jump" and how ~= "overflow" then has_function(gateway.binary, line, "mp_loop_run") end
      c:close()
    end)
  end

  it("that leaves no stack to walk is logged without frames", function()
    local g <close> = start()
    local c <close> = call(g, "crash", { how = "stack" })
    local line = ended(g, ILL)
    assert.equal("crash", line.fields.name)
    assert.is_nil(line.fields.frames)
    c:close()
  end)

  it("of a worker by a signal while a tool runs has the mark of that call", function()
    for _, signal in ipairs { SEGV, ABRT, BUS } do
      local g <close> = start()
      local c <close> = call(g, "crash", { how = "hang" })
      local mark = g:wait_log("crashes now").fields.call
      kill_thread(g.pid, "worker 1", signal)
      local line = ended(g, signal)
      assert.equal(mark, line.fields.call)
      assert.equal("crash", line.fields.name)
      assert.equal("scripts/tools/crash.lua:5", line.fields.at)
      assert.equal("worker 1", line.fields.thread)
      assert.is_nil(line.fields.address)
      c:close()
    end
  end)

  for _, thread in ipairs { "watchdog", "writer", "admin", "store", "pool", "database", "worker 2" } do
    it("is logged in the thread " .. thread, function()
      local g <close> = start { workers = 2, config = { store = { file = "data/store.db" } }, allow = { read = { "data" }, write = { "data" } } }
      local c <close> = g:client "2026-07-28"
      if thread == "pool" then c:result("tools/call", { name = "file" }) end
      if thread == "database" then
        c:open("tools/call", { name = "rows" })
        g:wait_log "opened"
      end
      kill_thread(g.pid, thread, SEGV)
      assert.equal(thread, ended(g, SEGV).fields.thread)
      c:close()
    end)
  end

  it("is logged in the main thread", function()
    local g <close> = start()
    kill_thread(g.pid, "moonpool", ABRT)
    local line = ended(g, ABRT)
    assert.equal("main", line.fields.thread)
    assert.is_nil(line.fields.call)
  end)

  it("is in the file of the log, as JSON where the log has it, and on stderr, too", function()
    local g <close> = start { config = { log = { file = "log.json", format = "json" } } }
    local c <close> = call(g, "crash", { how = "null" })
    local _, by = g:wait_exit(10)
    g.stopped = true
    assert.equal(SEGV, by)
    local last = g:file "log.json":match "([^\n]*)\n$"
    local line = assert(cjson.decode(last), last)
    assert.equal("crashed", line.event)
    assert.equal("error", line.level)
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$", line.time)
    assert.equal(SEGV, line.signal)
    assert.equal("crash", line.name)
    assert.equal("0x0", line.address)
    assert.matches("%+0x%x+ ", line.frames)
    assert.truthy(g:log():find(last, 1, true), g:log())
    c:close()
  end)

  it("ends the process although no program reads the log's pipe, which is full", function()
    local dir = gateway.prepare { scripts = scripts }
    assert(os.execute(("mkfifo '%s/log'"):format(dir)))
    local reader = assert(uv.fs_open(dir .. "/log", "r+", 0)) -- opens the FIFO, and never reads from it
    local flood = "dd if=/dev/zero bs=65536 count=1 2>/dev/null" -- as many bytes as a pipe holds
    local process = gateway.spawn("/bin/sh", {
      "-c", ('exec 2<>log; %s >&2; exec "%s" run moonpool.yaml'):format(flood, uv.fs_realpath(gateway.binary)),
    }, dir, { cwd = dir })
    local g = setmetatable({ dir = dir, pid = process.pid, process = process }, gateway.running)
    kill_thread(g.pid, "worker 2", SEGV)
    local _, by = g:wait_exit(20) -- the handler of the signal waits 4 s for the log's reader, then ends the process
    assert.equal(SEGV, by)
    uv.fs_close(reader)
  end)

  it("of a command is logged on stderr", function()
    local dir = gateway.prepare { scripts = { ["tools/wrong.lua"] = 'local _ = "crash:null" < "x"\nreturn tool { "T.", function() end }' } }
    local code, out, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir, env = preload })
    assert.equal(-SEGV, code)
    assert.equal("", out)
    assert.matches("^%S+ error crashed +signal=11 why=SIGSEGV code=1 address=0x0 thread=main [^\n]* at=scripts/tools/wrong.lua:1 [^\n]*\n$", err)

    dir = gateway.prepare { scripts = scripts }
    code, out, err = gateway.exec({ "call", "crash", "how=null" }, { cwd = dir, env = preload })
    assert.equal(1, code) -- `moonpool call` runs the tool in a process of its own, so the command itself does not crash
    assert.equal("", out)
    assert.matches(' error crashed +signal=11 [^\n]* thread="worker 1" [^\n]* name=crash at=scripts/tools/crash.lua:5 [^\n]*\n', err)
  end)

  it("of moonpool stdio is logged on stderr, and nothing of it is on stdout", function()
    local dir = gateway.prepare { scripts = scripts }
    local request = [[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crash","arguments":{"how":"null"},"_meta":{]] ..
      [["io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}]]
    local line = ([[(echo '%s'; sleep 10) | "%s" stdio moonpool.yaml; echo "code $?" >&2; kill 0]]):format(request, uv.fs_realpath(gateway.binary))
    local _, out, err = gateway.run_program("/usr/bin/setsid", { "-w", "sh", "-c", "trap : TERM; " .. line }, { cwd = dir, env = preload })
    assert.equal("", out)
    assert.matches(' error crashed +signal=11 [^\n]* thread="worker 1" [^\n]* name=crash [^\n]*\n', err)
    assert.matches("code 139", err)
  end)

  it("of a program, and the end of the process that watches it, are not the gateway's", function()
    local g <close> = start { allow = { run = { "sh" } } }
    local c <close> = g:client "2026-07-28"
    assert.equal("11", c:result("tools/call", { name = "program" }).content[1].text)
    assert.is_nil(g:log():find("crashed", 1, true), g:log())
    c:close()
  end)

  it("ends the first process of a container, too", function()
    local dir = gateway.prepare { scripts = { ["tools/wrong.lua"] = 'local _ = ("crash:" .. env "HOW") < "x"\nreturn tool { "T.", function() end }' },
      config = { scripts = { allow = { env = { "HOW" } } } } }
    if (gateway.run_program("/usr/bin/unshare", { "--pid", "--fork", "true" })) ~= 0 then return pending "unshare needs root" end
    for how, signal in pairs { null = SEGV, trap = ILL, abort = ILL } do
      -- unshare ends by the signal of its child
      local words = { "--pid", "--fork", uv.fs_realpath(gateway.binary), "check", "moonpool.yaml" }
      local code, _, err = gateway.run_program("/usr/bin/unshare", words, { cwd = dir, env = { HOW = how, LD_PRELOAD = preload.LD_PRELOAD } })
      assert.equal(-signal, code, how .. err)
      assert.matches(" error crashed +signal=%d+ [^\n]* thread=main ", err)
    end
  end)

  it("of the release build is read with moonpool.debug", function()
    if not uv.fs_stat(RELEASE) then return pending("there is no " .. RELEASE) end
    gateway.with_binary(RELEASE, function()
      local g <close> = start()
      local c <close> = call(g, "crash", { how = "null" })
      local line = ended(g, SEGV)
      has_function(RELEASE .. ".debug", line, "mp_loop_run")
      has_function(RELEASE .. ".debug", line, "luaV_execute")
      assert.equal("scripts/tools/crash.lua:5", line.fields.at)
      c:close()
    end)
  end)
end)

describe("a crash under a sanitizer", function()
  if not is_sanitized then return pending "this build has none" end

  it("is reported by the sanitizer", function()
    local g <close> = start()
    uv.kill(g.pid, "sigsegv")
    g:wait_exit(20)
    g.stopped = true
    assert.matches("Sanitizer", g:log())
    assert.is_nil(g:log():find("crashed ", 1, true), g:log())
  end)
end)
