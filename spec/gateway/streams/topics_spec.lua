-- A publication on a topic reaches the topic's subscribers, on any worker: sessions on their own stream, listening
-- calls on the stream of the call; each once, in order, and no other client.
local eras = require "spec.helpers.eras"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local run, code = trusted.run, trusted.code

local function close(...)
  for _, c in ipairs { ... } do
    if c.delete then c:delete() end
    c:close()
  end
end

-- Code that publishes `n` on `topic`, to both kinds of subscribers.
local function publish(topic, n)
  return ([[
    local topic, n = %q, %d
    host.topic.publish(topic, ('{"jsonrpc":"2.0","method":"plain","params":{"n":%%d,"topic":%%q}}'):format(n, topic),
      '{"jsonrpc":"2.0","method":"heard","params":{"id":', (',"n":%%d,"topic":%%q}}'):format(n, topic))]]):format(topic, n)
end

-- The publications that a stream brought, as a list of "topic n".
local function heard(messages)
  local list = {}
  for _, message in ipairs(messages) do
    if message.method == "plain" or message.method == "heard" then
      list[#list + 1] = ("%s %d"):format(message.params.topic, message.params.n)
    end
  end
  return list
end

local function wait_heard(stream, ...)
  local wanted = { ... }
  wait.for_fact("what was published", 20, function() return #heard(stream:messages()) >= #wanted end)
  assert.same(wanted, heard(stream:messages()))
end

-- A session that subscribes to topics, and has its stream open.
local function follower(g, revision, topics)
  local me = g:client(revision)
  me.listening = me.endpoint and me.stream or me:get_stream().connection
  me.listening:read_head()
  for _, topic in ipairs(topics) do
    assert.is_true(run(me, ("return host.session.subscribe(call, %q)"):format(topic)))
  end
  return me
end

local LISTENS <const> = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}'

-- A call that listens on the worker of `me`.
local function listen(me, topics)
  local names = {}
  for i, topic in ipairs(topics) do names[i] = ("%q"):format(topic) end
  local message = me:message("tools/call", code(
    ([==[kept.n = (kept.n or 0) + 1
      return host.call.listen(call, { %s }, '{"resultType":"complete"}', '%s')]==]):format(table.concat(names, ","), LISTENS)))
  me.kept.events = {}
  me.kept:send { method = "POST", path = "/mcp", headers = me:headers(message), body = message }
  me.kept:wait_event "notifications/progress"
  return { id = message.id, connection = me.kept, messages = function() return me.kept:messages() end }
end

describe("a publication", function()
  it("reaches every session that subscribed to it, once, on any worker and from any publisher", function()
    local g <close> = trusted.start()
    local one, two = trusted.workers(g)
    local all, some = {}, {}
    for i = 1, 12 do
      local revision = ({ "2024-11-05", "2025-03-26", "2025-11-25" })[i % 3 + 1]
      all[i] = follower(g, revision, i % 2 == 0 and { "a", "b" } or { "b" })
      if i % 2 == 0 then some[#some + 1] = all[i] end
    end
    assert.equal(18 + 12, g:status().gauges.subscriptions) -- each is subscribed to "tools" since initialize
    local bystander = follower(g, "2025-11-25", { "c" })
    run(one, publish("a", 1))
    for _, me in ipairs(some) do wait_heard(me.listening, "a 1") end
    run(two, publish("b", 2))
    for i, me in ipairs(all) do
      if i % 2 == 0 then wait_heard(me.listening, "a 1", "b 2") else wait_heard(me.listening, "b 2") end
    end
    assert.same({}, heard(bystander.listening:messages()))
    close(bystander, table.unpack(all))
    close(one, two)
    assert.has_nothing_left(g)
  end)

  it("arrives once however often a session subscribed, and not after it unsubscribed", function()
    local g <close> = trusted.start { workers = 1 }
    local me = follower(g, "2025-11-25", { "a", "a", "b" })
    run(me, publish("a", 1))
    wait_heard(me.listening, "a 1")
    run(me, 'host.session.unsubscribe(call, "a") host.session.unsubscribe(call, "a") host.session.unsubscribe(call, "c")')
    run(me, publish("a", 2))
    run(me, publish("b", 3))
    wait_heard(me.listening, "a 1", "b 3")
    close(me)
    assert.has_nothing_left(g)
  end)

  it("is sent once per topic and turn, the last of the turn, in the order of the turns", function()
    local g <close> = trusted.start { workers = 2 }
    local one, two = trusted.workers(g)
    local me = follower(g, "2025-11-25", { "a", "b" })
    local other = listen(two, { "a", "b" })
    run(one, publish("a", 1) .. " do " .. publish("b", 2) .. " end do " .. publish("a", 3) .. " end sleep(0) do " .. publish("a", 4) .. " end")
    wait_heard(me.listening, "a 3", "b 2", "a 4")
    wait_heard(other, "a 3", "b 2", "a 4")
    close(me)
    close(one, two)
    assert.has_nothing_left(g)
  end)

  it("goes to sessions, to subscribers or to both, as its sender chooses", function()
    local g <close> = trusted.start { workers = 2 }
    local one, two = trusted.workers(g)
    local me = follower(g, "2025-11-25", { "a" })
    local other = listen(two, { "a" })
    run(one, [[
      local function as(n) return ('{"jsonrpc":"2.0","method":"plain","params":{"topic":"a","n":%d,"x":'):format(n) end
      host.topic.publish("a", as(1) .. "0}}", nil, nil)
      sleep(0)
      host.topic.publish("a", nil, as(2), "}}")
      sleep(0)
      host.topic.publish("a", as(3) .. "0}}", as(3), "}}")]])
    wait_heard(me.listening, "a 1", "a 3")
    wait_heard(other, "a 2", "a 3")
    for _, message in ipairs(other:messages()) do
      if message.method == "plain" then assert.equal(other.id, message.params.x) end
    end
    close(me)
    close(one, two)
    assert.has_nothing_left(g)
  end)

  it("is dropped and counted for a session without a stream", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2025-11-25"
    assert.is_true(run(me, 'return host.session.subscribe(call, "a")'))
    run(me, publish("a", 1))
    g:wait_status(function(status) return status.counters.dropped.gone == 1 end)
    close(me)
    assert.has_nothing_left(g)
  end)

  it("reaches a thousand sessions and a thousand subscribers in slices, with other calls in between", function()
    local g <close> = trusted.start { config = { sessions = { per_principal = 10000 }, limits = { calls_in_flight = 50 } } }
    local one, two = trusted.workers(g)
    local followers, listeners = {}, {}
    for i = 1, 1200 do
      followers[i] = g:client "2025-11-25"
      followers[i].listening = followers[i]:get_stream().connection
      run(followers[i], 'return host.session.subscribe(call, "a")')
      listeners[i] = eras.client(g, "2026-07-28")
      listeners[i].stream = listeners[i]:open("tools/call", code('host.call.listen(call, { "a" }, "{}", \'' .. LISTENS .. "')"))
    end
    for _, me in ipairs(listeners) do me.stream:wait "notifications/progress" end
    g:wait_status(function(status) return status.gauges.listeners == 1200 end)
    for n = 1, 3 do run(one, publish("a", n)) end
    run(two, "return true")
    for i = 1, 1200 do
      wait_heard(followers[i].listening, "a 1", "a 2", "a 3")
      wait_heard(listeners[i].stream, "a 1", "a 2", "a 3")
    end
    for i = 1, 1200 do
      listeners[i]:close()
      followers[i]:delete()
      followers[i]:close()
    end
    close(one, two)
    assert.has_nothing_left(g)
  end)
end)

describe("a session that subscribes", function()
  it("must exist, and has a cap on its topics", function()
    local g <close> = trusted.start { workers = 1, constants = { subscriptions = 4 } } -- one of the subscriptions is "tools", made by `initialize`
    local new, old = g:client "2026-07-28", g:client "2025-11-25"
    assert.equal("no session", run(new, 'local _, why = host.session.subscribe(call, "a") return why'))
    assert.equal("too many", run(old, [[
      for i = 1, 3 do assert(host.session.subscribe(call, "t" .. i)) end
      local _, why = host.session.subscribe(call, "t4")
      assert(host.session.subscribe(call, "t1"))
      return why]]))
    assert.equal(4, g:status().gauges.subscriptions)
    assert.is_true(run(old, 'host.session.unsubscribe(call, "t1") return host.session.subscribe(call, "t4")'))
    close(old)
    close(new)
    assert.has_nothing_left(g)
  end)

  it("leaves no subscription when it ends, by DELETE, with its stream or by idling", function()
    local g <close> = trusted.start { workers = 2, config = { sessions = { idle = "1500ms" } } }
    for _, revision in ipairs { "2024-11-05", "2025-11-25" } do
      local me = g:client(revision)
      run(me, 'for i = 1, 100 do host.session.subscribe(call, "t" .. i) end')
      close(me)
    end
    local idle = g:client "2025-06-18"
    run(idle, 'for i = 1, 100 do host.session.subscribe(call, "t" .. i) end')
    g:wait_status(function(status) return status.gauges.subscriptions == 0 and status.counters.sessions_closed.idle == 1 end)
    idle:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a subscriptions/listen call", function()
  it("gets the publications of its topics, each once, from any worker", function()
    local g <close> = trusted.start { workers = 2 }
    local one, two = trusted.workers(g)
    local first, second = listen(one, { "a", "b", "a" }), listen(two, { "a" })
    g:wait_status(function(now) return now.gauges.listeners == 2 and now.gauges.requests_in_flight == 0 end)
    local publisher = g:client "2026-07-28"
    run(publisher, publish("a", 1) .. " do " .. publish("b", 2) .. " end do " .. publish("c", 3) .. " end")
    wait_heard(first, "a 1", "b 2")
    wait_heard(second, "a 1")
    publisher:close()
    one.kept:reset()
    g:wait_status(function(status) return status.gauges.listeners == 1 and status.counters.tool_aborted.gone == 1 end)
    publisher = g:client "2026-07-28"
    run(publisher, publish("a", 4))
    wait_heard(second, "a 1", "a 4")
    close(publisher, one, two)
    assert.has_nothing_left(g)
  end)

  it("has no time limit, and is answered when the gateway drains, which ends at once", function()
    local g <close> = trusted.start { workers = 2, config = { limits = { call = { time = "1s" }, drain = "60s" } } }
    local one, two = trusted.workers(g)
    local limited = g:client "2026-07-28"
    local streams = { listen(one, { "a" }), listen(two, {}) }
    assert.equal("the call took too long", limited:call("tools/call", code "sleep(60)").error.message)
    assert.equal(2, g:status().gauges.listeners)
    g:signal "sigterm"
    for _, stream in ipairs(streams) do
      assert.same({ resultType = "complete" }, stream.connection:wait_event(stream.id).json.result)
      stream.connection:wait_end()
    end
    assert.equal(0, (g:wait_exit(5)))
    close(one, two, limited)
  end)

  it("is refused where there are too many, and counted", function()
    local g <close> = trusted.start { workers = 1, constants = { subscriptions = 2, listeners = 1 } }
    local me, other = g:client "2026-07-28", g:client "2026-07-28"
    run(me, "return true")
    assert.equal("too many", run(other, 'local _, why = host.call.listen(call, { "a", "b", "c" }, "{}", "{}") return why'))
    local stream = listen(me, { "a" })
    assert.equal("too many", run(other, 'local _, why = host.call.listen(call, { "a" }, "{}", "{}") return why'))
    assert.equal(1, g:status().counters.refused.listeners)
    stream.connection:close()
    g:wait_status(function(status) return status.gauges.listeners == 0 end)
    close(me, other)
    assert.has_nothing_left(g)
  end)

  it("is ended if its client does not read, and no other call is", function()
    local g <close> = trusted.start { workers = 2, config = { limits = { stream_queue = "256KiB" } } }
    local one, two = trusted.workers(g)
    local fine = listen(one, { "a" })
    local slow = two:open("tools/call", code('host.call.listen(call, { "a" }, "{}", \'' .. LISTENS .. "')"), { buffer = 4096 })
    slow:wait "notifications/progress".connection:pause()
    local publisher = g:client "2026-07-28"
    local n = 0
    repeat
      n = n + 1
      run(publisher, ([[
        host.topic.publish("a", nil, '{"method":"heard","params":{"topic":"a","n":%d,"x":"' .. ("x"):rep(60000) .. '","id":', "}}")]]):format(n))
      wait.for_fact("it to be heard by the client that reads", 20, function() return #heard(fine:messages()) == n end)
    until n == 1000 or g:status().gauges.listeners == 1
    g:wait_status(function(status) return status.gauges.listeners == 1 and status.counters.tool_aborted.gone == 1 end)
    close(publisher, one, two)
    assert.has_nothing_left(g)
  end)
end)
