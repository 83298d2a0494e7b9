-- Background tasks: each has a call like the call that started it, outlives that call and its client, and ends by
-- itself, by `stop`, by its time limit, or with the gateway.
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local run, code = trusted.run, trusted.code

local function wait_run(client, what, value)
  wait.for_fact(what .. " to be " .. tostring(value), 20, function() return run(client, "return " .. what) == value end)
end

-- Code that starts a task which waits for kept.signal, with a closer.
local waiting = [[
  kept.signal, kept.seen, kept.closed = host.task.event(), nil, nil
  kept.job = assert(host.job.spawn(call, function(job)
    local _ <close> = setmetatable({}, { __close = function() kept.closed = job.cancelled end })
    kept.begun = true
    kept.signal:wait()
    kept.seen = { revision = job.revision, method = job.method, principal = job.principal.id, client = job.client.name,
      able = job.capabilities.roots ~= nil, meta = job.meta and job.meta.mine, has_session = job.has_session, id = host.call.id(job),
      initialized = job.initialized, sent = job:send { jsonrpc = "2.0", method = "x" }, cancelled = job.cancelled }
    job:progress(1)
    return "unheard"
  end, 60)) ]]

describe("a background task", function()
  for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-11-25", "2026-07-28" } do
    it("begun by a client of " .. revision .. " outlives it, and has the facts that its call had about the client", function()
      local g <close> = trusted.start { workers = 1 }
      local other = g:client "2026-07-28"
      local me = g:client(revision, { capabilities = { roots = {} } })
      local id = run(me, waiting .. "return host.call.id(call)")
      assert.equal(1, g:status().gauges.jobs)
      if revision == "2026-07-28" then -- with _meta, on a call whose client disconnects
        run(me, "kept.signal:set()")
        wait_run(me, "kept.closed", false)
        local stream = me:open("tools/call", code(waiting .. "sleep(60)", { mine = 7 }))
        wait.for_fact("it to begin", 20, function() return g:status().gauges.jobs == 1 end)
        stream:reset()
        g:wait_status(function(status) return status.gauges.requests_in_flight == 0 end)
        id = tostring(stream.id)
      end
      if me.delete then assert.equal(204, me:delete().status) end
      me:close()
      g:wait_status(function(status)
        return status.gauges.sessions.http + status.gauges.sessions.sse == 0 and status.gauges.jobs == 1
      end)
      run(other, "kept.signal:set()")
      wait_run(other, "kept.closed", false)
      assert.same({
        revision = revision, method = "tools/call", principal = "anonymous", client = "spec", able = true,
        meta = revision == "2026-07-28" and 7 or nil, has_session = revision ~= "2026-07-28", id = id, initialized = true,
        sent = false, cancelled = false,
      }, run(other, "return kept.seen"))
      assert.equal(0, g:status().gauges.jobs)
      assert.equal(0, g:status().counters.tool_aborted.gone - (revision == "2026-07-28" and 1 or 0))
      other:close()
      assert.has_nothing_left(g)
    end)
  end

  it("can be stopped: its <close> handlers run, and stopping it again has no effect", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    run(me, waiting)
    wait_run(me, "kept.begun", true)
    run(me, 'host.job.stop(kept.job, "enough")')
    wait_run(me, "kept.closed", true)
    g:wait_log("job cancelled", { why = "cancelled" })
    run(me, 'host.job.stop(kept.job) host.job.stop(kept.job, "again")')
    assert.is_true(run(me, 'host.job.stop(host.job.spawn(call, function() kept.never = true end, 1)) sleep(0.01) return kept.never == nil'))
    assert.is_nil(run(me, [[
      kept.job = host.job.spawn(call, function() host.job.stop(kept.job, "itself") sleep(0) kept.went_on = true end, 1)
      sleep(0.01)
      return kept.went_on]]))
    run(me, waiting)
    me:close()
    me = g:client "2026-07-28"
    run(me, "host.job.stop(kept.job)")
    me:close()
    assert.has_nothing_left(g)
  end)

  it("ends at its time limit", function()
    local g <close> = trusted.start { workers = 1, config = { limits = { call = { time = "60s" } } } }
    local me = g:client "2026-07-28"
    assert.is_true(run(me, [[
      local closed
      host.job.spawn(call, function(job)
        local _ <close> = setmetatable({}, { __close = function() closed = job.cancelled end })
        sleep(60)
      end, 0.05)
      while closed == nil do sleep(0.01) end
      return closed]]))
    assert.equal(1, g:status().counters.tool_aborted.time)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("can run longer than limits.call.time", function()
    local g <close> = trusted.start { workers = 1, config = { limits = { call = { time = "500ms" } } } }
    local me = g:client "2026-07-28"
    run(me, "host.job.spawn(call, function() sleep(1) kept.done = true end, 60)")
    wait_run(me, "kept.done", true)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is logged if it fails, and stops no other", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2025-11-25"
    run(me, 'host.job.spawn(call, function() error "broken" end, 1) host.job.spawn(call, function() sleep(0) error "broken later" end, 1)')
    assert.truthy(g:wait_log("task failed", { method = "tools/call" }).fields.error:find "broken")
    g:wait_status(function(status) return status.counters.tool_faults == 2 and status.gauges.jobs == 0 end)
    me:delete()
    me:close()
    assert.has_nothing_left(g)
  end)

  it("can begin others, at most as many as the limit of tasks at once", function()
    local g <close> = trusted.start { workers = 1, config = { tasks = { ttl = "90s" } }, constants = { tasks = 3 } }
    local me = g:client "2026-07-28"
    assert.same({ 3, "too many" }, run(me, [[
      kept.count, kept.signal = 0, host.task.event()
      local function more(from)
        local made, why = host.job.spawn(from, function(job)
          more(job)
          kept.signal:wait()
        end, 60)
        if made then kept.count = kept.count + 1 else kept.why = why end
      end
      more(call)
      while not kept.why do sleep(0.01) end
      return { kept.count, kept.why }]]))
    local status = g:status()
    assert.equal(3, status.gauges.jobs)
    assert.equal(1, status.counters.refused.jobs)
    assert.equal(90, run(me, "return host.limits.task_seconds"))
    run(me, "kept.signal:set()")
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a gateway that stops", function()
  it("cancels background tasks once no call is left", function()
    local g <close> = trusted.start { workers = 2, config = { limits = { drain = "60s" } } }
    local one, two = trusted.workers(g)
    run(one, waiting)
    local called = two:open("tools/call", code([[
      host.job.spawn(call, function() local _ <close> = setmetatable({},
        { __close = function() host.log.write("info", "closed", {}) end }) sleep(3600) end, 9000)
      kept.signal = host.task.event()
      hearing.on("go", function() kept.signal:set() end)
      call:progress(1)
      return kept.signal:wait(60)]], { progressToken = "p" }))
    called:wait "notifications/progress"
    local teller = one:open("tools/call", code('call:progress(1) sleep(0.3) host.bus.broadcast("go", "")', { progressToken = "p" }))
    teller:wait "notifications/progress"
    g:signal "sigterm"
    assert.is_true((trusted.read(called:answer()))) -- calls have their time limit, whether background tasks run or not
    assert.equal(0, (g:wait_exit(5)))
    g:wait_log "closed"
    one:close()
    two:close()
  end)

  it("cancels them at once at a second signal, or when limits.drain is over", function()
    for _, how in ipairs { "twice", "drain" } do
      local g <close> = trusted.start { workers = 2, config = { limits = { drain = how == "twice" and "60s" or "50ms" } } }
      local one, two = trusted.workers(g)
      for _, me in ipairs { one, two } do run(me, waiting) end
      local call = one:open("tools/call", code("call:progress(1) sleep(60)", { progressToken = "p" }))
      call:wait "notifications/progress"
      g:signal "sigterm"
      if how == "twice" then
        g:wait_log "draining"
        g:signal "sigterm"
      end
      assert.equal(0, (g:wait_exit(5)))
      one:close()
      two:close()
    end
  end)
end)
