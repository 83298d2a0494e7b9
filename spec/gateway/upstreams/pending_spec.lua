-- host.upstream below lua/moonpool/upstream: exchanges that wait without a task for a client's retry, over all
-- transports, on two workers.
local cjson = require "cjson.safe"
local low = require "spec.helpers.upstream.low"
local trusted = require "spec.helpers.trusted"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local raw = upstream.raw

-- kept.ask(): sends a call whose upstream asks, and waits for the question: the exchange and the event. kept.drain(x):
-- what comes until the end.
local library = [[
local json = require "moonpool.json"
function kept.begin(arguments, options)
  local channel = assert(kept.open("one", "k"))
  local id = channel:next_id()
  options = options or {}
  options.takes_questions = true
  options.id, options.cancel = id, json.encode { jsonrpc = "2.0", method = "notifications/cancelled", params = { requestId = id } }
  local params = { name = "ask", arguments = json.object(arguments or {}), _meta = { progressToken = id } }
  return assert(channel:send(json.encode { jsonrpc = "2.0", id = id, method = "tools/call", params = params }, options))
end
function kept.ask(arguments, options)
  local x = kept.begin(arguments, options)
  local event = assert(x:next())
  assert(event.kind == "request", event.kind)
  return x, event
end
function kept.park(x, seconds, principal)
  return x:make_pending(seconds or 60, { '{"jsonrpc":"2.0","id":"q1","result":{"action":"cancel"}}' }, principal or "me")
end
function kept.drain(x)
  local seen = {}
  while true do
    local event, failure = x:next()
    if not event then
      seen[#seen + 1] = failure.outcome .. " " .. failure.reason
      return seen
    end
    local params = event.bytes and json.decode(event.bytes).params or {}
    seen[#seen + 1] = event.result and json.decode(event.result).content[1].text
      or event.method .. " " .. tostring(params.progress or params.data or params.message or "")
    if event.kind == "answer" then return seen end
  end
end
function kept.reply(x) return x:reply '{"jsonrpc":"2.0","id":"q1","result":{"action":"accept","content":{}}}' end
return true]]

local QUESTION <const> = '{"jsonrpc":"2.0","id":"%s","method":"elicitation/create","params":{"message":"Sure?",'
  .. '"requestedSchema":{"type":"object","properties":{}}}}'

local function ask(x, id) return x:emit(QUESTION:format(id or "q1")) end

local function log_note(x, text) x:emit(('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}'):format(text)) end

local function text_result(text) return ('{"content":[{"type":"text","text":"%s"}]}'):format(text) end

-- A stub whose tool `ask` asks at once; u.calls are its exchanges.
local function start_stub(transport)
  local u = upstream.start { transport = transport, revision = transport == "sse" and "2024-11-05" or "2025-11-25", strict = false }
  u.calls, u.transport = {}, transport
  u.handlers.ask = function(x)
    table.insert(u.calls, x)
    x.session.ids[x.id] = true
    if not x.arguments.later then ask(x) end
  end
  return u
end

local function start(u, options, more)
  more = more or {}
  if u.transport == "sse" then more.revision = "sse" end
  return low.start(upstream.entries({ one = u }, { one = more }), options)
end

-- Clients on two workers, whose tool has the functions above.
local function workers(g)
  local one, two = low.workers(g, 2)
  trusted.run(one, library)
  trusted.run(two, library)
  return one, two
end

local function gauge(g, value)
  g:wait_status(function(status) return status.gauges.upstream_pending == value and status.upstreams.one.pending == value end)
end

local function wait_running(g, value) g:wait_status(function(status) return status.upstreams.one.running == value end) end

for _, transport in ipairs { "http", "sse", "stdio" } do
  describe("a parked exchange over " .. transport, function()
    it("is taken up on another worker, and the upstream sees one call and the answer to its question", function()
      local u <close> = start_stub(transport)
      local g <close> = start(u, nil, { calls = 1 })
      local one, two = workers(g)
      for round, pair in ipairs { { one, two }, { two, one }, { one, one }, { two, two } } do
        local handle = trusted.run(pair[1], "local x = kept.ask() return kept.park(x)")
        gauge(g, 1)
        wait_running(g, 0)
        -- the slot is free
        assert.equal("{}", trusted.run(one, [[return require "moonpool.json".decode(
          kept.call("one", "k", "tools/call", { params = { name = "echo", arguments = require "moonpool.json".object {} } }).result).content[1].text]]))
        local answer = pair[2]:open("tools/call", trusted.code(([[
          local x = assert(host.upstream.take_up("%s", "me"))
          kept.reply(x)
          return kept.drain(x)]]):format(handle)))
        local reply = u:wait({ kind = "response" }, round)
        assert.equal('"q1"', raw.at(reply.text, "id"))
        wait_running(g, 1)
        local x = u.calls[round]
        x:report(1, 2)
        x:result(text_result "done")
        assert.same({ "notifications/progress 1", "done" }, trusted.read(answer:answer()))
        gauge(g, 0)
      end
      assert.equal(4, u:ran "ask")
      one:close()
      two:close()
    end)

    it("keeps the answer, the latest progress and some log messages for the retry, without a question that was withdrawn", function()
      local u <close> = start_stub(transport)
      local g <close> = start(u)
      local one, two = workers(g)
      local handle = trusted.run(one, "local x = kept.ask() return kept.park(x)")
      local x = u.calls[1]
      for i = 1, 50 do x:report(i) end
      for i = 1, 100 do log_note(x, i .. ("-"):rep(2000)) end
      ask(x, "q2")
      ask(x, "q3")
      x:emit '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q2"}}'
      x:result(text_result "late")
      g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 end)
      gauge(g, 1)
      local seen = trusted.run(two, ([[return kept.drain(host.upstream.take_up("%s", "me"))]]):format(handle))
      local logs, others, bytes = 0, {}, 0
      for _, text in ipairs(seen) do
        if text:find "^notifications/message" then
          logs, bytes = logs + 1, bytes + #text
        else
          others[#others + 1] = text
        end
      end
      assert.same({ "notifications/progress 50", "elicitation/create Sure?", "late" }, others)
      assert.is_true(logs >= 20 and logs <= 33 and bytes <= 65536, logs .. " messages of " .. bytes .. " bytes")
      assert.is_true(seen[#seen - 2]:find "^notifications/message 100%-" ~= nil)
      assert.is_true(g:status().counters.dropped.upstream_pending >= 49 + 67)
      gauge(g, 0)
      one:close()
      two:close()
    end)

    it("sends its cancel messages and cancels the call when no retry comes, and nothing of it is left", function()
      local u <close> = start_stub(transport)
      local g <close> = start(u, { constants = { upstream_pending_ms = 1000 } })
      local one, two = workers(g)
      local handle = trusted.run(one, "local x = kept.ask() return kept.park(x)")
      local answer = u:wait { kind = "response" }
      assert.equal("cancel", answer.json.result.action)
      local cancelled = u:wait { method = "notifications/cancelled" }
      assert.equal(u.calls[1].id, raw.at(cancelled.text, "params", "requestId"))
      gauge(g, 0)
      assert.is_nil(trusted.run(two, ([[return host.upstream.take_up("%s", "me")]]):format(handle)))
      g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 end)
      assert.equal(1, g:status().counters.upstream_pending_expired)
      one:close()
      two:close()
    end)

    it("that had waited for its turn is counted once among those that wait", function()
      local u <close> = start_stub(transport)
      local g <close> = start(u, nil, { calls = 1 })
      local one, two = workers(g)
      trusted.run(two, "assert(kept.open('one', 'k'))")
      local running = one:open("tools/call", trusted.code "return kept.drain((kept.begin { later = true }))")
      wait.for_fact("the call", 20, function() return u.calls[1] end)
      local parked = two:open("tools/call", trusted.code "return kept.park((kept.ask()))")
      g:wait_status(function(status) return status.upstreams.one.waiting == 1 end)
      u.calls[1]:result(text_result "done")
      assert.same({ "done" }, trusted.read(running:answer()))
      trusted.read(parked:answer())
      gauge(g, 1)
      u.calls[2]:drop() -- the upstream ends the exchange while it is pending, when it has no slot
      g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 end)
      local status = g:status().upstreams.one
      assert.equal(0, status.waiting)
      assert.equal(0, status.running)
      one:close()
      two:close()
    end)

    it("sends its cancel messages when the gateway drains", function()
      local u <close> = start_stub(transport)
      local g <close> = start(u)
      local one, two = workers(g)
      trusted.run(one, "local x = kept.ask() return kept.park(x)")
      trusted.run(two, "local x = kept.ask() return kept.park(x)")
      one:close()
      two:close()
      g:signal "sigterm"
      u:wait({ kind = "response" }, 2)
      u:wait({ method = "notifications/cancelled" }, 2)
      g:wait_exit()
    end)

    it("ends with its upstream's connection, and the retry gets the failure", function()
      local u <close> = start_stub(transport)
      local g <close> = start(u)
      local one, two = workers(g)
      local handle = trusted.run(one, "local x = kept.ask() return kept.park(x)")
      gauge(g, 1)
      u.calls[1]:drop()
      gauge(g, 0)
      assert.same({ "unknown closed" }, trusted.run(two, ([[return kept.drain(assert(host.upstream.take_up("%s", "me")))]]):format(handle)))
      assert.is_nil(trusted.run(two, ([[return host.upstream.take_up("%s", "me")]]):format(handle)))
      one:close()
      two:close()
    end)
  end)
end

local function reload(g, members)
  local file <close> = assert(io.open(g.dir .. "/moonpool.yaml"))
  local config = cjson.decode(file:read "a")
  config.scripts.drain = "1s"
  for name, value in pairs(members) do config.upstreams.one[name] = value end
  local out <close> = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
  out:write(cjson.encode(config))
  out:close()
  assert.equal(200, g:admin("/reload", "POST").status)
end

describe("a parked exchange", function()
  it("is found with its handle and by its principal alone, once", function()
    local u <close> = start_stub "http"
    local g <close> = start(u)
    local one, two = workers(g)
    local handle = trusted.run(one, "local x = kept.ask() return kept.park(x, 60, 'me\\0too')")
    assert.equal(32, #handle)
    for _, try in ipairs { { handle, "me" }, { handle, "me\\0other" }, { handle:gsub("^.", "g"), "me\\0too" }, { "", "me\\0too" } } do
      assert.is_nil(trusted.run(two, ([[return host.upstream.take_up("%s", "%s")]]):format(try[1], try[2])))
    end
    gauge(g, 1)
    local answer = two:open("tools/call", trusted.code(([[
      local x = assert(host.upstream.take_up("%s", "me\0too"))
      assert(not host.upstream.take_up("%s", "me\0too"))
      kept.reply(x)
      return kept.drain(x)]]):format(handle, handle)))
    u:wait { kind = "response" }
    u.calls[1]:result(text_result "done")
    assert.same({ "done" }, trusted.read(answer:answer()))
    assert.is_nil(trusted.run(one, ([[return host.upstream.take_up("%s", "me\0too")]]):format(handle)))
    one:close()
    two:close()
  end)

  it("is parked again and again, on whatever worker, and loses no event on the way", function()
    local u <close> = start_stub "http"
    local g <close> = start(u)
    local one, two = workers(g)
    local handle = trusted.run(one, "return kept.park((kept.begin { later = true }))")
    local x = wait.for_fact("the call", 20, function() return u.calls[1] end)
    local clients, first = { one, two }, handle
    for i = 1, 40 do
      ask(x, "n" .. i)
      -- Makes the exchange pending again: with an event unread, with one on its way, or after the event was read.
      local read = i % 3 == 0
      handle = trusted.run(clients[i % 2 + 1], ([[
        local x = assert(host.upstream.take_up("%s", "me"))
        local seen = %s and x:next().id or ""
        kept.ids = (kept.ids or "") .. seen
        return { kept.park(x), seen }]]):format(handle, tostring(read)))
      if read then assert.equal(('"n%d"'):format(i // 3), handle[2]) end
      handle = handle[1]
    end
    assert.are_not.equal(first, handle)
    x:result(text_result "done")
    local seen = trusted.run(two, ([[return kept.drain(assert(host.upstream.take_up("%s", "me")))]]):format(handle))
    assert.equal(40 - 13 + 1, #seen)
    assert.equal("done", seen[#seen])
    gauge(g, 0)
    one:close()
    two:close()
  end)

  it("gives each event to the task that has taken it up last, in their order, also if others were quicker than the event", function()
    local u <close> = start_stub "http"
    local g <close> = start(u)
    local one, two = workers(g)
    local handle = trusted.run(one, "local x = kept.ask() return kept.park(x)")
    ask(u.calls[1], "q2")
    ask(u.calls[1], "q3")
    ask(u.calls[1], "q4")
    local quick = [[
      local handle = "%s"
      for i = 1, 3 do handle = kept.park((assert(host.upstream.take_up(handle, "me")))) end
      local x = assert(host.upstream.take_up(handle, "me"))
      ]]
    local seen = trusted.run(two, (quick .. "return { x:next().id, x:next().id, x:next().id, kept.park(x) }"):format(handle))
    assert.same({ '"q2"', '"q3"', '"q4"' }, { table.unpack(seen, 1, 3) })
    u.calls[1]:drop()
    g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 end)
    assert.same({ "unknown closed" }, trusted.run(two, (quick .. "return kept.drain(x)"):format(seen[4])))
    one:close()
    two:close()
  end)

  it("is cancelled by the task that has taken it up, and by the end of that task", function()
    local u <close> = start_stub "http"
    local g <close> = start(u)
    local one, two = workers(g)
    local own = [[x:cancel('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"mine"}}')]]
    for i, how in ipairs { "x:cancel()", "", own } do
      local handle = trusted.run(one, "local x = kept.ask() return kept.park(x)")
      trusted.run(two, ([[local x = assert(host.upstream.take_up("%s", "me")) %s]]):format(handle, how:format(u.calls[i].id)))
      local cancelled = u:wait({ method = "notifications/cancelled" }, i)
      assert.equal(u.calls[i].id, raw.at(cancelled.text, "params", "requestId"))
      assert.equal(i == 3 and "mine" or nil, cancelled.json.params.reason)
    end
    g:wait_status(function(status) return status.gauges.upstream_exchanges == 0 end)
    one:close()
    two:close()
  end)

  it("counts for the limits of the process and of its principal; a call over them goes on", function()
    local u <close> = start_stub "http"
    local g <close> = start(u, { constants = { upstream_pending = 3, upstream_pending_per_principal = 2 } })
    local one, two = workers(g)
    local function try(principal) return trusted.run(one, ([[local x = kept.ask() return kept.park(x, 60, "%s")]]):format(principal)) end
    local first = try "me"
    try "me"
    local function refused(principal)
      local waits = one:open("tools/call", trusted.code(([[
        local x = kept.ask()
        local handle, failure = kept.park(x, 60, "%s")
        kept.reply(x)
        return { failure.reason, kept.drain(x)[1] }]]):format(principal)))
      local n = #u:all { kind = "response" }
      u:wait({ kind = "response" }, n + 1)
      u.calls[#u.calls]:result(text_result "went on")
      assert.same({ "busy", "went on" }, trusted.read(waits:answer()))
    end
    refused "me"
    try "you"
    refused "she"
    assert.equal(2, g:status().counters.refused.upstream_pending)
    gauge(g, 3)
    u.calls[1]:drop()
    gauge(g, 2)
    assert.equal(32, #try "me") -- 32 places are free: a pending exchange that has failed takes none
    assert.same({ "unknown closed" }, trusted.run(two, ([[return kept.drain(assert(host.upstream.take_up("%s", "me")))]]):format(first)))
    one:close()
    two:close()
  end)

  it("stays over a reload that does not concern it, and ends with its upstream", function()
    local u <close> = start_stub "http"
    local g <close> = start(u)
    local one, two = workers(g)
    local handle = trusted.run(one, "local x = kept.ask() return kept.park(x)")
    local other = trusted.run(one, "local x = kept.ask() return kept.park(x)")
    reload(g, { timeout = "61s" })
    trusted.run(one, low.library)
    trusted.run(one, library)
    trusted.run(two, low.library)
    trusted.run(two, library)
    gauge(g, 2)
    local answer = two:open("tools/call", trusted.code(([[
      local x = assert(host.upstream.take_up("%s", "me"))
      kept.reply(x)
      return kept.drain(x)]]):format(handle)))
    u:wait { kind = "response" }
    u.calls[1]:result(text_result "done")
    assert.same({ "done" }, trusted.read(answer:answer()))
    reload(g, { headers = { ["x-new"] = "1" } })
    assert.equal("cancel", u:wait({ kind = "response" }, 2).json.result.action)
    u:wait { method = "notifications/cancelled" }
    g:wait_status(function(status) return status.gauges.upstream_pending == 0 end)
    trusted.run(two, low.library)
    trusted.run(two, library)
    assert.same({ "unknown stopped" }, trusted.run(two, ([[return kept.drain(assert(host.upstream.take_up("%s", "me")))]]):format(other)))
    one:close()
    two:close()
  end)
end)

describe("bytes that a call keeps for its retry", function()
  it("are given once, to their principal, on any worker, within the limits of parks", function()
    local u <close> = start_stub "http"
    local g <close> = start(u, { constants = { upstream_pending = 2, upstream_pending_per_principal = 2, upstream_pending_ms = 2000 } })
    local one, two = workers(g)
    local handle = trusted.run(one, [[return host.upstream.keep("a\0b", 60, "me")]])
    assert.is_nil(trusted.run(two, ([[return host.upstream.fetch("%s", "you")]]):format(handle)))
    assert.is_nil(trusted.run(two, ([[return host.upstream.take_up("%s", "me")]]):format(handle)))
    assert.is_true(trusted.run(two, ([[return host.upstream.fetch("%s", "me") == "a\0b"]]):format(handle)))
    assert.is_nil(trusted.run(two, ([[return host.upstream.fetch("%s", "me")]]):format(handle)))
    assert.equal("too_large", trusted.run(one, [[return select(2, host.upstream.keep(("x"):rep((1 << 20) + 1), 60, "me")).reason]]))
    assert.same({ 32, 32, "busy" }, trusted.run(one, [[
      local a, b = host.upstream.keep(("x"):rep(1 << 20), 60, "me"), host.upstream.keep("", 60, "me")
      return { #a, #b, select(2, host.upstream.keep("", 60, "me")).reason }]]))
    g:wait_status(function(status) return status.gauges.upstream_pending == 0 end)
    one:close()
    two:close()
  end)
end)
