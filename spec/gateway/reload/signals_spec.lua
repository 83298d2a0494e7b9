-- How tasks of a worker wake each other, by signals, and how workers send messages to each other.
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local run, code, read = trusted.run, trusted.code, trusted.read

local function close(...)
  for _, client in ipairs { ... } do client:close() end
end

describe("an event of host.event", function()
  it("wakes all waiting tasks, and lets later tasks pass until it is cleared", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    run(me, "kept.signal, kept.waiting = host.task.event(), 0")
    local streams = {}
    for i = 1, 5 do
      streams[i] = me:open("tools/call", code("kept.waiting = kept.waiting + 1 return kept.signal:wait(" .. (i % 2 == 0 and "60" or "") .. ")"))
    end
    wait.for_fact("all to wait", 20, function() return run(me, "return kept.waiting") == 5 end)
    assert.equal(5, g:status().gauges.ops)
    run(me, "kept.signal:set()")
    for _, stream in ipairs(streams) do assert.is_true(read(stream:answer())) end
    assert.same({ true, true, false, false }, run(me, [[
      local later, at_once = kept.signal:wait(), kept.signal:wait(0)
      kept.signal:clear()
      return { later, at_once, kept.signal:wait(0.01), kept.signal:wait(-1) }]]))
    close(me)
    assert.has_nothing_left(g)
  end)

  it("can be waited for in a script's coroutine, and set by the <close> handler of another task", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    run(me, "kept.signal, kept.other = host.task.event(), host.task.event()")
    local inside = me:open("tools/call", code "kept.inside = true return coroutine.wrap(function() return kept.signal:wait(60) end)()")
    local leaver = me:open("tools/call", code [[
      local _ <close> = setmetatable({}, { __close = function() kept.signal:set() end })
      kept.leaver = true
      kept.other:wait()]])
    wait.for_fact("both to wait", 20, function() return run(me, "return kept.inside and kept.leaver") end)
    leaver:hang_up()
    assert.is_true(read(inside:answer()))
    assert.is_true(run(me, "kept.other:set() return true"))
    close(me)
    assert.has_nothing_left(g)
  end)

  it("drops tasks whose call is cancelled", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    run(me, "kept.signal = host.task.event()")
    for _, time in ipairs { "", "60" } do
      local stream = me:open("tools/call", code("kept.waits = true kept.signal:wait(" .. time .. ")"))
      wait.for_fact("it to wait", 20, function() return run(me, "local was = kept.waits kept.waits = nil return was") end)
      stream:hang_up()
      g:wait_status(function(status) return status.gauges.ops == 0 end)
    end
    run(me, "kept.signal:set()")
    close(me)
    assert.has_nothing_left(g)
  end)

  it("that a task waits for delays no shutdown", function()
    local g <close> = trusted.start { workers = 1, config = { limits = { drain = "0s" } } }
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", code "kept.signal = host.task.event() kept.signal:wait()")
    wait.for_fact("it to wait", 20, function() return run(me, "return kept.signal ~= nil") end)
    g:signal "sigterm"
    assert.equal(-32603, stream:answer().error.code)
    assert.equal(0, (g:wait_exit(5)))
    close(me)
  end)
end)

describe("a message between workers", function()
  it("reaches every worker, its sender too, in order, before the tasks of the turn", function()
    local g <close> = trusted.start { workers = 3 }
    local one, two, three = trusted.workers(g, 3)
    for _, client in ipairs { one, two, three } do
      run(client, 'kept.heard = {} hearing.on("n", function(text) kept.heard[#kept.heard + 1] = text end)')
    end
    run(two, 'for i = 1, 1000 do host.bus.broadcast("n", i .. "\\0") end host.bus.broadcast("unknown", "x")')
    for _, client in ipairs { one, two, three } do
      wait.for_fact("all to be heard", 20, function() return run(client, "return #kept.heard") == 1000 end)
      assert.is_true(run(client, 'for i, text in ipairs(kept.heard) do if text ~= i .. "\\0" then return i end end return true'))
    end
    assert.same({ 1000, 1001 }, run(two, [[
      local before = #kept.heard
      host.bus.broadcast("n", "x")
      sleep(0)
      return { before, #kept.heard }]]))
    close(one, two, three)
    assert.has_nothing_left(g)
  end)

  it("wakes tasks; its handler cannot wait, and an error in one handler is logged and stops no other", function()
    local g <close> = trusted.start { workers = 2 }
    local one, two = trusted.workers(g)
    for _, me in ipairs { one, two } do run(me, [[
      kept.signal = host.task.event()
      hearing.on("wake", function() kept.signal:set() end)
      hearing.on("wait", function() sleep(1) end)
      hearing.on("fail", function() error "broken" end)]]) end
    local stream = one:open("tools/call", code "kept.waits = true return kept.signal:wait(60)")
    -- the call waits in one of the two workers, which the kernel chose
    wait.for_fact("it to wait", 20, function() return run(one, "return kept.waits") or run(two, "return kept.waits") end)
    run(two, 'host.bus.broadcast("wait", "") host.bus.broadcast("fail", "") host.bus.broadcast("wake", "")')
    assert.is_true(read(stream:answer()))
    assert.truthy(g:wait_log("bus message failed", { method = "wait" }).fields.error:find "may not wait here")
    assert.truthy(g:wait_log("bus message failed", { method = "fail" }).fields.error:find "broken")
    close(one, two)
    assert.has_nothing_left(g)
  end)
end)
