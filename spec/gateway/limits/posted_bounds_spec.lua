-- What workers send each other is bounded where it is sent: the worker that it is for may be stuck, and takes nothing
-- meanwhile.
local blocking = require "spec.helpers.blocking"
local client = require "spec.helpers.client"
local trusted = require "spec.helpers.trusted"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local MIB <const> = 1 << 20
local PING <const> = { name = "ping" }

-- Three workers.
local function start(more)
  local limits = { call = { time = "1h", cpu = "1h" } }
  for name, value in pairs(more or {}) do limits[name] = value end
  return trusted.start { workers = 3, constants = { stuck_ms = 500 }, config = { limits = limits }, scripts = {
    ["tools/block.lua"] = blocking.tool,
    ["tools/ping.lua"] = 'return tool { "Answers.", function() return "pong" end }',
    ["tools/large.lua"] = 'local text = ("x"):rep(200000) return tool { "Much.", function() return text end }',
    ["resources/note.lua"] = 'return resource { "A note.", uri = "note://one", "text" }',
  } }
end

-- Blocks the worker that gets the call: it is stuck until release(g, stream). Returns the stream of the call.
local function block(g, me)
  local stream = blocking.open(g, me)
  g:wait_status(function(now) return now.gauges.workers_stuck == 1 end)
  return stream
end

local function release(g, stream)
  blocking.release(g)
  assert.equal("done", stream:answer().result.content[1].text)
  g:wait_status(function(now) return now.gauges.workers_stuck == 0 end)
end

-- Blocks one worker of three. Returns a client of each other worker, one of the stuck worker, a function that releases
-- it, and the list of these three clients.
local function two_that_turn(g)
  local three = table.pack(trusted.workers(g, 3))
  for _, one in ipairs(three) do trusted.run(one, [[
    kept.heard = 0
    hearing.on("n", function() kept.heard = kept.heard + 1 end)]]) end
  local me = g:client "2026-07-28"
  local stream = block(g, me)
  local turning, stuck = {}, nil
  for _, one in ipairs(three) do
    if pcall(trusted.run, one, "return true", 1) then turning[#turning + 1] = one else stuck = one end
  end
  return turning[1], turning[2], stuck, function()
    release(g, stream)
    me:close()
  end, three
end

-- Lets the stuck worker go on, and asserts that it takes the messages that waited for it: the tool ping is off in every
-- worker, and nothing is left.
local function ends_without_ping(g, go_on, stuck, three)
  go_on()
  stuck:close() -- the client has given up its last request
  g:wait_status(function(now) return now.gauges.bus_bytes == 0 end)
  for _ = 1, 10 do
    local me <close> = g:client "2026-07-28"
    assert.matches("ping", me:call("tools/call", PING).error.message)
  end
  for _, me in ipairs(three) do me:close() end
  assert.has_nothing_left(g)
end

-- Asserts that `moonpool status` says that messages were lost.
local function says_lost(g)
  g:wait_status(function(status)
    for _, one in ipairs(status.conditions) do
      if one.condition == "messages_lost" then return one.what == "messages between workers, or processes, were lost" end
    end
  end)
end

describe("messages between workers, one of which is stuck,", function()
  it("wait up to 64 MiB, are refused to their sender above, and reach the others; a switch still fits", function()
    local g <close> = start()
    local one, two, stuck, go_on, three = two_that_turn(g)
    local refused = 0
    for i = 1, 25 do
      refused = refused + trusted.run(one, [[
        local text, refused = ("x"):rep(1 << 20), 0
        for _ = 1, 4 do if not host.bus.broadcast("n", text) then refused = refused + 1 end end
        return refused]])
      for _, me in ipairs { one, two } do wait.for_fact("all to be heard", 20, function() return trusted.run(me, "return kept.heard") == 4 * i end) end
    end
    local status = g:status()
    assert.equal(100 - 63, refused)
    assert.equal(refused, status.counters.dropped.bus)
    says_lost(g)
    assert.is_true(status.gauges.bus_bytes > 60 * MIB and status.gauges.bus_bytes <= 64 * MIB, status.gauges.bus_bytes)
    assert.is_true(trusted.run(one, 'return host.bus.broadcast("n", "small")'))
    trusted.run(one, 'disable("tool", "ping")')
    ends_without_ping(g, go_on, stuck, three)
  end)

  it("that did not fit are made up for when it turns", function()
    local g <close> = start()
    local one, _, stuck, go_on, three = two_that_turn(g)
    -- messages of any size are dropped once the reserve is used up, too
    trusted.run(one, [[
      local large, small = ("x"):rep(1 << 20), ("x"):rep(500)
      while host.bus.broadcast("n", large) do sleep(0) end
      local n = 0
      while host.bus.broadcast("n", small) do
        n = n + 1
        if n % 100 == 0 then sleep(0) end
      end
      while host.bus.broadcast("n", "") do end]], 60)
    local status = g:wait_status(function(now) return now.gauges.bus_bytes <= 73 * MIB end) -- the share of one worker
    assert.is_true(status.gauges.bus_bytes > 71 * MIB, status.gauges.bus_bytes)
    local dropped = status.counters.dropped.bus
    trusted.run(one, 'disable("tool", "ping")')
    assert.is_true(g:status().counters.dropped.bus > dropped)
    ends_without_ping(g, go_on, stuck, three)
  end)
end)

describe("publications for calls of a stuck worker", function()
  it("wait up to 16 MiB, and the newer ones are dropped and counted", function()
    local g <close> = start { stream_queue = "64MiB" }
    local listening = g:client "2026-07-28"
    for _ = 1, 32 do -- so many that each worker has some of them
      listening:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "note://one" } } }):wait "notifications/subscriptions/acknowledged"
    end
    local me = g:client "2026-07-28"
    local stream, other = block(g, me), g:client "2026-07-28"
    trusted.run(other, [[
      local text = ("x"):rep(1 << 18)
      for _ = 1, 200 do
        for _, audience in ipairs(host.topic.audiences "resource:note://one") do
          host.topic.publish("resource:note://one\0" .. audience, nil, '{"jsonrpc":"2.0","method":"x","params":["' .. text .. '",', "]}")
        end
        sleep(0)
      end]])
    local status = g:wait_status(function(now) return now.counters.dropped.publications > 0 and now.gauges.publication_bytes < 17 * MIB end)
    assert.is_true(status.gauges.publication_bytes > 15 * MIB)
    says_lost(g)
    release(g, stream)
    g:wait_status(function(now) return now.gauges.publication_bytes == 0 and now.gauges.publications == 0 end)
    for _, c in ipairs { listening, me, other } do c:close() end
    assert.has_nothing_left(g)
  end)
end)

describe("answers for streams whose worker is stuck", function()
  it("wait up to a 16th of limits.answers each, and count in it; a stream for which there are more ends", function()
    local g <close> = start { answers = "24MiB", stream_queue = "1KiB" }
    local clients = {}
    -- so many that the worker which will be stuck has some of them
    for i = 1, 16 do clients[i] = g:client "2024-11-05" end
    local me = g:client "2026-07-28"
    local stream = block(g, me)
    local most = 0
    for _, c in ipairs(clients) do
      for id = 100, 119 do
        local message = wire.message(id, "tools/call", { name = "large" })
        client.request(g, { method = "POST", path = c.endpoint, headers = { ["Content-Type"] = "application/json" }, body = message })
      end
      most = math.max(most, g:status().gauges.queue_bytes)
    end
    local status = g:wait_status(function(now) return now.counters.dropped.slow > 0 end)
    assert.is_true(most > 0 and most <= 24 * MIB, most)
    assert.equal(0, status.counters.sessions_closed.slow)
    release(g, stream)
    g:wait_status(function(now) return now.counters.sessions_closed.slow > 0 and now.gauges.queue_bytes == 0 end)
    for _, c in ipairs(clients) do c:close() end
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("clients' answers to questions of a stuck worker's calls", function()
  it("wait up to 64 MiB; the call of one that does not fit gets an error", function()
    local g <close> = trusted.start { workers = 2, constants = { stuck_ms = 500 }, config = { limits = { call = { time = "1h", cpu = "1h" } } }, scripts = {
      ["tools/block.lua"] = blocking.tool,
      ["tools/ask.lua"] = [[return tool { "Asks.", function(_, call)
        local answer, why = call:elicit("text", "Which?", { text = t.string })
        return answer and "got " .. #answer.text or "failed: " .. tostring(why)
      end }]],
    } }
    local c = g:client("2025-11-25", { capabilities = { elicitation = { form = { [" "] = 1 } } } })
    local asked = {}
    for i = 1, 64 do -- so many that both workers have some of them
      local stream = c:open("tools/call", { name = "ask" })
      asked[i] = { stream = stream, id = stream:wait_event("elicitation/create").json.id }
    end
    local me = g:client "2026-07-28"
    local blocked, text = block(g, me), ("x"):rep(3 * MIB)
    for _, one in ipairs(asked) do
      local reply = { jsonrpc = "2.0", id = one.id, result = { action = "accept", content = { text = text } } }
      local response = client.request(g, { method = "POST", path = "/mcp", headers = c:headers(), body = reply })
      assert.equal(202, response.status)
    end
    local status = g:wait_status(function(now) return now.counters.dropped.replies > 0 and now.gauges.reply_bytes <= 64 * MIB + 4096 end)
    assert.is_true(status.gauges.reply_bytes > 58 * MIB, status.gauges.reply_bytes)
    says_lost(g)
    release(g, blocked)
    local failed = 0
    for _, one in ipairs(asked) do
      local said = one.stream:answer().result.content[1].text
      if said ~= "got " .. #text then
        assert.matches("^failed: ", said)
        failed = failed + 1
      end
    end
    assert.equal(status.counters.dropped.replies, failed)
    assert.equal(0, g:status().gauges.reply_bytes)
    c:delete()
    for _, one in ipairs { c, me } do one:close() end
    assert.has_nothing_left(g)
  end)
end)

describe("messages to a program whose channel is a stuck worker's", function()
  local function echo(c) return c:open("tools/call", { name = "u_echo", arguments = { n = 1 } }) end

  -- Blocks a worker: the one that has the upstream's channel if `is_home`, else the other one. Blocks and releases
  -- workers until it is the right one.
  local function block_one(g, is_home)
    for _ = 1, 40 do
      local me = g:client "2026-07-28"
      local stream, other = block(g, me), g:client "2026-07-28"
      local call = echo(other)
      if pcall(call.answer, call, 2) ~= is_home then return me, stream, other, call end
      release(g, stream)
      me:close()
      other:close()
    end
    error "the kernel gives all connections to one worker"
  end

  local function start_with(u)
    local g = upstream.gateway({ u = u }, { workers = 2, entries = { u = { timeout = "60s", retry = "never" } },
      scripts = { ["tools/block.lua"] = blocking.tool },
      constants = { stuck_ms = 500 }, config = { scripts = { path = "scripts", trust = "full" }, limits = { call = { time = "1h", cpu = "1h" } } } })
    g:client("2026-07-28"):result("tools/call", { name = "u_echo", arguments = { n = 1 } })
    return g
  end

  it("wait up to 64 MiB, also those of calls that have ended, and above that calls fail as busy", function()
    local u <close> = upstream.start { transport = "stdio", revision = "2025-11-25" }
    local g <close> = start_with(u)
    local me, stream, other, first = block_one(g, true)
    local large, busy = ("x"):rep(3 * MIB), 0
    for _ = 1, 30 do
      local before = g:status()
      local call = other:open("tools/call", { name = "u_echo", arguments = { text = large } })
      local now = g:wait_status(function(now)
        return now.gauges.upstream_ordered_bytes > before.gauges.upstream_ordered_bytes + 3 * MIB or now.counters.refused.upstream_busy > busy
      end)
      if now.counters.refused.upstream_busy > busy then upstream.failure(call:answer(), "not_run", "busy") end
      busy = now.counters.refused.upstream_busy
      call:hang_up()
    end
    local held = g:status().gauges.upstream_ordered_bytes
    assert.is_true(busy >= 8 and held > 60 * MIB and held <= 64 * MIB + MIB, ("%d busy, %d bytes"):format(busy, held))
    release(g, stream)
    assert.is_truthy(first:answer().result)
    g:wait_status(function(now) return now.gauges.upstream_ordered_bytes == 0 end)
    for _, c in ipairs { me, other } do c:close() end
  end)

  it("are answered once: further answers of the program are dropped, while the worker of the call is stuck, too", function()
    local u <close> = upstream.start { transport = "stdio", revision = "2025-11-25" }
    local g <close> = start_with(u)
    local c, calls = g:client "2026-07-28", {}
    -- so many that both workers have some of them
    for i = 1, 16 do calls[i] = c:open("tools/call", { name = "u_hold", arguments = { key = tostring(i) } }) end
    local held = u:wait_held(16)
    local me, stream, other = block_one(g, false)
    local dropped, text = g:status().counters.dropped.upstream_id, ("x"):rep(MIB)
    for _, x in ipairs(held) do
      for _ = 1, 10 do x:emit(('{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}'):format(x.id, text)) end
    end
    local status = g:wait_status(function(now) return now.counters.dropped.upstream_id == dropped + 9 * 16 end)
    assert.is_true(status.gauges.upstream_event_bytes <= 17 * MIB, status.gauges.upstream_event_bytes)
    release(g, stream)
    for _, call in ipairs(calls) do assert.equal(MIB, #call:answer().result.content[1].text) end
    g:wait_status(function(now) return now.gauges.upstream_event_bytes == 0 end)
    for _, x in ipairs(held) do x:forget() end
    for _, one in ipairs { c, me, other } do one:close() end
  end)
end)
