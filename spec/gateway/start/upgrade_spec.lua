-- SIGUSR2 and moonpool upgrade: another process takes the place of the running one, and no connection is refused.
local uv = require "luv"
local knocking = require "spec.helpers.knocking"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

describe("an upgrade", function()
  it("refuses no connection, new or kept, while processes follow each other", function()
    local g <close> = upgrading.start {}
    local new, kept = knocking.start(g.port, 6), upgrading.keep(g.port, 6)
    for i = 1, 3 do
      new:wait(50)
      kept:wait(50)
      g:replace()
      if i == 2 then g:must_upgrade_by_signal() else g:must_upgrade() end
    end
    new:wait(200)
    kept:wait(200)
    new:stop()
    kept:stop()
    assert.same({ 0, 0, 0 }, { new.refused, new.lost, kept.failed }, tostring(new.last or kept.last) .. g:log())
    wait.for_fact("the older processes to end", 20, function() return #g:older() == 0 end)
    assert.equal(g.pid, g:status().pid)
  end)

  it("forgets an older process that ends while the next one is on trial", function()
    local g <close> = upgrading.start {}
    local first, session = g.pid, g:client "2025-06-18"
    g:must_upgrade()
    g:replace_by_trial("kill -TERM " .. first)
    g:must_upgrade()
    g:wait_log("older process ended", { pid = first })
    local last = {}
    wait.for_fact(function() return "no older process; the last answer: " .. require "cjson.safe".encode(last) end, 20, function()
      last = g:status().upgrade or {}
      return #last == 0
    end)
    session.kept:close()
  end)
end)

-- Upgrades while clients connect, which must fail: returns what the command has printed. `may_lose`: what the new
-- process serves ends with it.
local function must_fail(g, may_lose)
  local new, pid = knocking.start(g.port, 4), g.pid
  new:wait(20)
  local code, _, err = g:upgrade()
  new:wait(50)
  new:stop()
  assert.equal(1, code, err)
  assert.same({ 0, 0 }, { new.refused, may_lose and 0 or new.lost }, tostring(new.last))
  assert.equal(pid, g:status().pid)
  return err
end

describe("an upgrade whose new process", function()
  local g
  setup(function()
    g = upgrading.start { config = { scripts = { watch = false } }, scripts = { ["tools/add.lua"] = "--- One.\nreturn function() return 1 end" } }
  end)
  teardown(function()
    if g then g:stop() end
  end)
  before_each(function() g:replace() end)

  it("ends at its start changes nothing, and the reason is printed and logged", function()
    g:replace "#!/bin/sh\necho 'a library is missing' >&2\nexit 3\n"
    local err = must_fail(g)
    assert.matches("the new process ended with code 3:\na library is missing", err, 1, true)
    g:wait_log("not upgraded", { said = "a library is missing" })
  end)

  it("is no program changes nothing", function()
    if os.getenv "TSAN_OPTIONS" then return pending "posix_spawn of a process with ThreadSanitizer does not say that the program cannot be run" end
    g:replace "\0"
    assert.matches("cannot be started: Exec format error", must_fail(g), 1, true)
  end)

  it("is killed at the handover changes nothing", function()
    g:replace "#!/bin/sh\nkill -9 $$\n"
    assert.matches("the new process was ended by signal 9", must_fail(g), 1, true)
  end)

  it("is killed in its trial gives the sockets back", function()
    for _, seconds in ipairs { "0", "0.5" } do
      g:replace_by_trial("sleep " .. seconds .. "; kill -9 $$")
      local err = must_fail(g, true)
      assert.matches("the new process was ended by signal 9", err, 1, true)
    end
  end)

  it("is told to end in its trial gives the sockets back", function()
    g:replace_by_trial "kill -15 $$"
    assert.matches("the new process is not well: it is stopping, as by SIGTERM", must_fail(g), 1, true)
  end)

  it("finds errors in the configuration changes nothing", function()
    local path = g.dir .. "/moonpool.yaml"
    local before <close> = assert(io.open(path, "rb"))
    local text = before:read "a"
    for _, wrong in ipairs { text:sub(1, -2) .. ', "nonsense": 1}', "" } do
      local file <close> = assert(io.open(path, "wb"))
      file:write(wrong)
      file:close()
      assert.matches(wrong == "" and "the file is empty" or "unknown key 'nonsense'", must_fail(g), 1, true)
    end
    local after <close> = assert(io.open(path, "wb"))
    after:write(text)
  end)

  it("finds errors in the scripts changes nothing", function()
    local path = g.dir .. "/scripts/tools/wrong.lua"
    local file <close> = assert(io.open(path, "wb"))
    file:write "return function("
    file:close()
    assert.matches("tools/wrong.lua:1", must_fail(g), 1, true)
    uv.fs_unlink(path)
  end)

  it("is good follows all those that were not", function()
    local first = g.pid
    g:must_upgrade()
    assert.not_equal(first, g.pid)
    assert.equal(g.pid, g:status().pid)
  end)
end)
