-- scripts.reload_check: a reload waits until the recorded calls were replayed against the new scripts.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local process = require "spec.helpers.process"
local wait = require "spec.helpers.wait"

local token = ("o"):rep(32)
local add = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }'

local function write(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
  file:write(text)
end

local function start(reload_check, scripts, more, constants)
  local config = {
    admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, record = { tools = { "*" } },
    scripts = { watch = false, reload_check = reload_check },
  }
  for name, value in pairs(more or {}) do config[name] = value end
  return gateway.start { scripts = scripts or { ["tools/add.lua"] = add }, config = config, constants = constants }
end

local function reload(g)
  return client.request(g, { path = "/reload", method = "POST", headers = { Authorization = "Bearer " .. token } }, { admin = true, seconds = 60 })
end

-- A connection that has asked for a reload, once the replay for it has begun.
local function asking_reload(g)
  local asking = g:connect { admin = true }
  asking:send { path = "/reload", method = "POST", headers = { Authorization = "Bearer " .. token } }
  wait.for_fact("a replay", 20, function() return #process.below(g.pid) > 0 end)
  return asking
end

local function add_up(g, a, b) return g:client("2026-07-28"):result("tools/call", { name = "add", arguments = { a = a, b = b } }) end

local function counted(g, n)
  wait.for_fact(n .. " records", 20, function() return g:status().counters.records.kept >= n end)
end

describe("scripts.reload_check", function()
  it("refuses a reload; for a value that it has not the possible ones are named, and scripts.gate is known as its old name", function()
    do
      local g <close> = start "refuse"
      assert.equal("5", add_up(g, 2, 3).content[1].text)
      counted(g, 1)
      write(g, "tools/add.lua", 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function() fail "not today" end }')
      assert.equal(422, reload(g).status)
    end
    local dir = gateway.prepare { config = { scripts = { reload_check = "replays" } }, scripts = { ["tools/add.lua"] = add } }
    local _, _, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.truthy(err:find("'scripts.reload_check' cannot be 'replays'", 1, true), err)
    assert.truthy(err:find("allowed: off, warn, refuse", 1, true), err)
    for _, old in ipairs { "refuse", { replay = "refuse" } } do
      dir = gateway.prepare { config = { scripts = { gate = old } }, scripts = { ["tools/add.lua"] = add } }
      _, _, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
      assert.truthy(err:find("scripts.reload_check is off, warn or refuse", 1, true), err)
    end
  end)
end)

describe("a reload with scripts.reload_check of scripts that are trusted", function()
  local add_of = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) %s return args.a + args.b end }'

  -- A gateway with a record of the tool, which is changed after that.
  local function start_with_change(text)
    local g = start("refuse", { ["tools/add.lua"] = text }, { scripts = { watch = false, reload_check = "refuse", trust = "full" } })
    assert.equal("3", add_up(g, 1, 2).content[1].text)
    counted(g, 1)
    write(g, "tools/add.lua", text .. "\n-- changed\n")
    return g
  end

  it("passes where a handler uses what a replay has not, and is refused if another call fails", function()
    for _, use in ipairs { 'io.open("/dev/null"):close()', 'os.getenv "HOME"', "debug.traceback()", 'io.stderr:write("")', 'pcall(os.remove, "none")',
      'local old = package.path package.path = old' } do
      local g <close> = start_with_change(add_of:format(use))
      local answer = reload(g)
      assert.equal(200, answer.status, use .. answer.body)
      assert.equal("7", add_up(g, 3, 4).content[1].text)
    end
    local g <close> = start_with_change("local open, os_of, trace <const> = io.open, os, debug.traceback\n" .. add_of:format 'assert(open and os_of and trace)')
    assert.equal(200, reload(g).status)
    write(g, "tools/add.lua", add_of:format 'fail "not today"')
    assert.equal(422, reload(g).status)
  end)

  it("says what to do where a script uses it while it is loaded", function()
    for use, name in pairs { ['io.open("/dev/null"):close()'] = "io.open", ['os.getenv "HOME"'] = "os.getenv", ["debug.traceback()"] = "debug.traceback",
      ["package.path = ''"] = "package.path" } do
      local g <close> = start_with_change(use .. "\n" .. add_of:format "")
      local answer = reload(g)
      assert.equal(422, answer.status)
      assert.truthy(answer.body:find("the recorded calls could not be replayed", 1, true), answer.body)
      assert.truthy(answer.body:find("tools/add.lua:1: a replay has no '" .. name .. "'", 1, true), answer.body)
      assert.truthy(answer.body:find("hint: a replay reaches nothing outside, whatever scripts.trust says", 1, true), answer.body)
      assert.truthy(answer.body:find("set scripts.reload_check to off", 1, true), answer.body)
      assert.is_nil(answer.body:find("opens the whole standard library", 1, true), answer.body)
      write(g, "../moonpool.yaml", (g:file("moonpool.yaml"):gsub('"?reload_check"?: *"?refuse"?', "reload_check: off")))
      assert.equal(200, reload(g).status)
    end
  end)
end)

describe("a reload with scripts.reload_check", function()
  it("is refused if a recorded call fails now, and serves what passes", function()
    local g <close> = start "refuse"
    add_up(g, 1, 2)
    add_up(g, 3, 4)
    counted(g, 2)
    write(g, "tools/add.lua", (add:gsub("return args.a", "if args.a == 3 then error 'broken' end return args.a")))
    local answer = reload(g)
    assert.equal(422, answer.status, answer.body)
    assert.matches("recorded calls fail with the new scripts", answer.body)
    assert.matches("FAILS add %x+", answer.body)
    assert.matches("replayed 2 calls, 1 fail now", answer.body)
    assert.equal("7", add_up(g, 3, 4).content[1].text)
    assert.equal(1, g:status().counters.gates.refused)
    assert.matches("recorded calls fail", cjson.encode((g:status())))
    g:wait_log "script refused"
    write(g, "tools/add.lua", (add:gsub("return args.a", "return 100 + args.a")))
    answer = reload(g)
    assert.equal(200, answer.status, answer.body)
    -- results differ, but no call fails, so the scripts are served
    assert.matches("replayed 3 calls, 3 differ", answer.body)
    assert.equal("107", add_up(g, 3, 4).content[1].text)
    assert.equal(1, g:status().counters.gates.passed)
    assert.same({}, process.below(g.pid))
  end)

  it("has nothing of the calls' arguments and results in its answer, in the log and in /status, which more people may read than records", function()
    local find = 'return tool { "Finds.", input = { who = t.string }, function(args) return "MARK-result of " .. args.who end }'
    for _, change in ipairs { 'log.error("no such", { who = args.who }) error("no such " .. args.who)', 'fail("no such " .. args.who)', "return args.who" } do
      for _, gate in ipairs { "refuse", "warn" } do
        local g <close> = start(gate, { ["tools/find.lua"] = find })
        g:client("2026-07-28"):result("tools/call", { name = "find", arguments = { who = "MARK-argument" } })
        counted(g, 1)
        write(g, "tools/find.lua", (find:gsub('return "MARK.*args.who', function() return change end)))
        local answer = reload(g)
        assert.matches("replayed 1 call, 1", answer.body)
        assert.matches(change:find "return" and "differs find %x+" or "FAILS find %x+: failed now, ok before", answer.body)
        assert.matches("moonpool replay --last 100 shows", answer.body, 1, true)
        for _, text in ipairs { answer.body, g:admin("/status").body, g:log() } do assert.is_nil(text:find("MARK", 1, true), text) end
      end
    end
  end)

  it("only warns if that is asked for", function()
    local g <close> = start "warn"
    add_up(g, 1, 2)
    counted(g, 1)
    write(g, "tools/add.lua", (add:gsub("return args.a", "error 'broken' return args.a")))
    local answer = reload(g)
    assert.equal(200, answer.status, answer.body)
    assert.matches("FAILS add %x+", answer.body)
    g:wait_log "recorded calls fail"
    assert.is_true(add_up(g, 1, 2).isError)
  end)

  it("does not wait where nothing is recorded, and tells scripts that do not load as ever", function()
    local g <close> = start "refuse"
    write(g, "tools/add.lua", (add:gsub("return args.a", "return 100 + args.a")))
    assert.equal(200, reload(g).status)
    assert.equal("103", add_up(g, 1, 2).content[1].text)
    counted(g, 1)
    write(g, "tools/add.lua", "return tool {")
    local answer = reload(g)
    assert.equal(422, answer.status)
    assert.matches("add.lua", answer.body)
    assert.equal(0, g:status().counters.gates.passed)
  end)

  it("does not refuse because a script asks outside for the first time", function()
    local g <close> = start "refuse"
    add_up(g, 1, 2)
    counted(g, 1)
    write(g, "tools/add.lua", (add:gsub("return args.a", "store.set('last', args.a) return args.a")))
    local answer = reload(g)
    assert.equal(200, answer.status, answer.body)
    assert.matches("asks outside what the record has no answer for", answer.body)
  end)

  it("is bounded in time, while calls go on and the admin listener answers", function()
    local g <close> = start("refuse", nil, nil, { gate_ms = 1000 })
    add_up(g, 1, 2)
    counted(g, 1)
    write(g, "tools/add.lua", (add:gsub("return args.a", "while true do end return args.a")))
    local asking <close> = asking_reload(g)
    assert.equal("3", add_up(g, 1, 2).content[1].text)
    local answer = asking:read_response(60)
    assert.truthy(answer.body:find("did not end within 30 s", 1, true) or answer.body:find("FAILS add", 1, true), answer.body)
    local fails = answer.body:find("FAILS add", 1, true)
    assert.equal(fails and 422 or 200, answer.status)         -- the time of recorded calls, which clients choose, refuses nothing
    wait.for_fact("no process to be left", 20, function() return #process.below(g.pid) == 0 end)
  end)

  -- The judgement of the reload check on a call that was recorded with the handler `before` and is replayed with
  -- `after`.
  local function judged(before, after, limits)
    local tool = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) %s return args.a + args.b end }'
    local g <close> = start("refuse", { ["tools/add.lua"] = tool:format(before) }, { limits = limits })
    assert.equal("3", add_up(g, 1, 2).content[1].text)
    counted(g, 1)
    write(g, "tools/add.lua", tool:format(after))
    return reload(g)
  end

  it("is refused if a recorded call goes over a limit now, whatever the handler catches", function()
    local cpu = { call = { cpu = "200ms" } }
    for _, case in ipairs {
      { "while true do end", "the call ran Lua for longer than limits.call.cpu", cpu },
      { "pcall(function() while true do end end)", "the call ran Lua for longer than limits.call.cpu", cpu },
      { "while true do pcall(sleep, 1) end", "the call took too long", cpu },
      { "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end", "the call took more memory than limits.call.memory" },
    } do
      local answer = judged("", case[1], case[3])
      assert.equal(422, answer.status, case[1] .. answer.body)
      assert.truthy(answer.body:find("FAILS add %x+: " .. case[2]), answer.body)
    end
  end)

  it("is refused for a loop within twice limits.call.cpu, however long the recorded call waited", function()
    local slow = add:gsub("return args.a", "sleep(3) return args.a")
    local g <close> = start("refuse", { ["tools/add.lua"] = slow }, { limits = { call = { time = "60s", cpu = "100ms" } } }, { gate_ms = 2500 })
    assert.equal("3", add_up(g, 1, 2).content[1].text)
    counted(g, 1)
    write(g, "tools/add.lua", (add:gsub("return args.a", "while true do end return args.a")))
    local answer = reload(g)
    assert.equal(422, answer.status, answer.body)
    assert.matches("FAILS add %x+: the call ran Lua for longer than limits.call.cpu", answer.body)
  end)

  it("is refused if a recorded call is slower now by more than its time limit, and without waiting for it", function()
    for _, after in ipairs { "sleep(100)", "for _ = 1, 70 do sleep(0.1) end", "parallel { function() sleep(100) end, function() sleep(1) end }",
      "local at = os.clock() repeat until os.clock() > at + 2" } do
      local answer = judged("", after, { call = { time = "1s", cpu = "60s" } })
      assert.equal(422, answer.status, after .. answer.body)
      assert.matches("FAILS add %x+: [%d.]+ s now, [%d.]+ s before: slower by more than its time limit, 1 s", answer.body)
    end
  end)

  it("passes where a recorded call was slow before, and where its time may be for want of an answer", function()
    local limits = { call = { time = "2s", cpu = "300ms" } }
    for before, after in pairs { ["sleep(1.5)"] = "sleep(1.6)",
      ["local at = os.clock() repeat until os.clock() > at + 0.2"] = "local at = os.clock() repeat until os.clock() > at + 0.21",
      [""] = "local at = os.time() while os.time() < at + 1 do sleep(0.1) end" } do
      local answer = judged(before, after, limits)
      assert.equal(200, answer.status, after .. answer.body)
    end
    local answer = judged("", "repeat until pcall(store.get, 'key')", limits)
    assert.equal(200, answer.status, answer.body)
    assert.matches("fails add %x+ .*asks outside what the record has no answer for", answer.body)
  end)

  it("goes on with the files as they are in the end", function()
    local g <close> = start "refuse"
    add_up(g, 1, 2)
    counted(g, 1)
    -- the replay takes its time, so that it is seen
    write(g, "tools/add.lua", (add:gsub("return args.a", "local at = os.clock() repeat until os.clock() > at + 0.5 error 'broken' return args.a")))
    local asking <close> = asking_reload(g)
    write(g, "tools/add.lua", add)
    local answer = asking:read_response(60)
    -- depends on whether the replay has read the file before or after the change
    assert.truthy(answer.status == 422 or answer.status == 200, answer.body)
    wait.for_fact("the files that serve", 20, function() return reload(g).status == 200 end)
    assert.equal("3", add_up(g, 1, 2).content[1].text)
    local turns = g:cpu()
    wait.for_fact("an answer", 20, function() return reload(g).status == 200 end)
    assert.is_true(g:cpu() - turns < 2)                       -- the gateway does not repeat the replay by itself
    assert.same({}, process.below(g.pid))
  end)

  for _, signal in ipairs { "sigterm", "sigkill" } do
    it("ends with the gateway, with all processes that it began, by " .. signal, function()
      local g <close> = start("refuse", nil, { limits = { call = { cpu = "10m", time = "10m" } } }, { gate_ms = 3600000 })
      add_up(g, 1, 2)
      counted(g, 1)
      write(g, "tools/add.lua", (add:gsub("return args.a", "while true do end return args.a")))
      local asking <close> = asking_reload(g)
      local began
      wait.for_fact("the process that runs the calls", 20, function()
        began = process.below(g.pid)
        return #began == 2
      end)
      if signal == "sigkill" then
        g:kill()
        g.stopped = true -- its exit code is not checked
      else
        g:stop()
      end
      wait.for_fact("its processes to be gone", 20, function()
        for _, pid in ipairs(began) do
          if not process.is_gone(pid) then return false end
        end
        return true
      end)
      asking:close()
    end)
  end
end)
