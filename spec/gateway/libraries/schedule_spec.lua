-- scripts/jobs: functions that run periodically, on one worker, and never twice at once.
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local function log(g)
  local file <close> = assert(io.open(g.dir .. "/stderr", "rb"))
  return file:read "a"
end


describe("a job", function()
  it("runs every so often, once for all workers, with a call of its own", function()
    local g <close> = code.start { workers = 2, scripts = { ["jobs/count.lua"] = [[
      return job { "Counts.", every = 0.2, function(call)
        store.set("call", { principal = call.principal.id, revision = call.revision, session = call.session == nil, sent = call:progress(1) == nil })
        store.set("at:" .. store.incr "n", time.monotonic())
      end }]] } }
    local me = g:client "2026-07-28"
    wait.for_fact("it to run five times", 10, function() return (code.run(me, "return store.get 'n'") or 0) >= 5 end)
    local ok = code.run(me, [[
      for i = 2, 5 do
        local between = store.get("at:" .. i) - store.get("at:" .. i - 1)
        assert(between >= 0.18, between)
      end
      return true]])
    assert.is_true(ok)
    assert.same({ principal = "job:count", revision = "2026-07-28", session = true, sent = true }, code.run(me, "return store.get 'call'"))
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
    me:close()
  end)

  it("never overlaps itself, waits like any handler, and is ended by its time limit", function()
    local g <close> = code.start { workers = 2, scripts = { ["jobs/slow.lua"] = [[
      return job { "Takes its time.", every = 0.1, timeout = 0.3, function()
        if store.incr "running" > 1 then store.set("overlapped", true) end
        local _ <close> = closing(function() store.incr("running", -1) end)
        if store.incr "n" == 2 then sleep(60) end
        sleep(0.15)
      end }]] } }
    local me = g:client "2026-07-28"
    wait.for_fact("it to run five times", 10, function() return (code.run(me, "return store.get 'n'") or 0) >= 5 end)
    assert.is_true(code.run(me, "return store.get 'overlapped' == nil"))
    assert.truthy(log(g):find('scheduled job cancelled +name=slow'))
    assert.truthy(g:status().counters.tool_aborted.time >= 1)
    me:close()
  end)

  it("that fails is logged, with file and line, and runs again", function()
    local g <close> = code.start { workers = 1, scripts = {
      ["jobs/bug.lua"] = 'return job { "Breaks.", every = 0.1, function()\n  store.incr "n"\n  error "a bug"\nend }',
      ["jobs/no.lua"] = 'return job { "Fails.", every = 0.1, function() return nil, "not today" end }',
      ["jobs/off.lua"] = 'return job { "Is off.", every = 0.1, enabled = false, function() store.set("off", true) end }',
    } }
    local me = g:client "2026-07-28"
    wait.for_fact("it to run twice", 10, function() return (code.run(me, "return store.get 'n'") or 0) >= 2 end)
    local text = log(g)
    assert.truthy(text:find('error job failed.*name=bug trace=scripts/jobs/bug.lua:3 why="scripts/jobs/bug.lua:3: a bug"'), text)
    wait.for_fact("the other to fail", 20, function() return log(g):find('warn +job failed +name=no why="not today"') end)
    assert.is_true(code.run(me, "return store.get 'off' == nil"))
    me:close()
  end)

  it("notifies subscribers", function()
    local g <close> = code.start { workers = 2, scripts = {
      ["resources/tide.lua"] = 'return resource { "The tide.", uri = "tide://now", function() return tostring(store.get "tide") end }',
      ["jobs/tide.lua"] = 'return job { "Measures.", every = 0.1, function() store.incr "tide" resource_updated "tide://now" end }',
    } }
    local me = g:client "2026-07-28"
    local stream = me:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "tide://now" } } })
    stream:wait_event "notifications/resources/updated"
    stream:close()
    me:close()
  end)

  it("does not keep the gateway from stopping", function()
    local g <close> = code.start { workers = 1, scripts = {
      ["jobs/long.lua"] = 'return job { "Long.", every = 1, function() store.set("there", true) sleep(600) end }',
    } }
    local me = g:client "2026-07-28"
    wait.for_fact("it to run", 20, function() return code.run(me, "return store.get 'there'") end)
    me:close()
    g:stop()
  end)

  it("is checked and listed like any script", function()
    local dir = gateway.prepare { scripts = {
      ["jobs/refresh.lua"] = 'return job { "Refreshes.\\nMore.", every = 5 * minutes, function() end }',
      ["jobs/later.lua"] = 'return job { "Later.", every = 1 * hours, enabled = false, function() end }',
    } }
    local status, out = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.equal(0, status)
    assert.truthy(out:find("job  later  Later.  (off)\njob  refresh  Refreshes.\n", 1, true), out)
    dir = gateway.prepare { scripts = {
      ["jobs/a.lua"] = 'return job { "A.", evry = 5, function() end }',
      ["jobs/b.lua"] = 'return job { "B.", every = 0.01, function() end }',
      ["jobs/c.lua"] = 'return function() end',
    } }
    local _, _, err = gateway.exec({ "check", "moonpool.yaml" }, { cwd = dir })
    assert.truthy(err:find("job has no option 'evry'", 1, true), err)
    assert.truthy(err:find("did you mean 'every'?", 1, true), err)
    assert.truthy(err:find("'every' must be from 0.1 seconds to 30 days", 1, true), err)
    assert.truthy(err:find("'c' is a function, not a job", 1, true), err)
  end)
end)
