-- Taps above their rate, on several workers: what a tap gets in a second, that events sent and dropped add up, the
-- order of a call's events, how often events go to the readers, and taps that open and close meanwhile. The load is
-- requests for a path that does not exist, many in one write: each is an event `refused`.
local uv = require "luv"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local RATE <const> = 1000 -- events of one tap in a second of the monotonic clock
local BATCH_MS <const> = 40 -- the least time between two batches for the readers while events come without a pause
local LATE_MS <const> = 2 -- a timer may fire this many ms early

local token = ("o"):rep(32)
local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
}

local function start(workers)
  return gateway.start { workers = workers or 2, scripts = scripts,
    config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token } } }, log = { audit = "audit.log" } } }
end

-- A connection that taps; the tap is open when this returns.
local function tap(g, query)
  local reader = client.connect(g, { admin = true })
  reader:send { path = "/api/tap" .. (query or ""), headers = { Authorization = "Bearer " .. token } }
  assert.equal(200, reader:read_head().status)
  reader:wait_event(function(event) return event.json and event.json.event == "tap opened" end)
  return reader
end

-- The number of events whose member `event` is `name`, and the sum of what the events `dropped` say.
local function counts_of(reader, name)
  local shown, dropped = 0, 0
  for _, event in ipairs(reader:messages()) do
    if event.event == name then shown = shown + 1 end
    if event.event == "dropped" then dropped = dropped + event.count end
  end
  return shown, dropped
end

-- Sends `count` requests for a path that does not exist; they are on their way when this returns.
local function refuse(c, count, path)
  c.pending = (c.pending or 0) + count
  c:send_raw(("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"):format(path or "/nowhere", c.port):rep(count))
end

-- Waits for the answers, whose bodies are not looked at.
local function wait_refused(list)
  for _, c in ipairs(list) do
    c.seen = c.seen or 0
    wait.for_fact("answers to all requests", 60, function()
      assert(not c.error and not c.eof, c.error or "the connection was closed")
      for _, part in ipairs(c.inbox) do
        c.rest = c.rest .. part
      end
      c.inbox = {}
      local from = 1
      while true do
        local at = c.rest:find("HTTP/1.1 404", from, true)
        if not at then break end
        c.seen, from = c.seen + 1, at + 12
      end
      c.rest = c.rest:sub(math.max(from, #c.rest - 11))
      return c.seen == c.pending
    end)
  end
end

local function seconds_now() return uv.hrtime() / 1e9 end

describe("taps under load", function()
  it("get their rate and not an event more, and sent and dropped are all events, with two workers and three taps", function()
    local g <close> = start(2)
    local all <close> = tap(g)
    local some <close> = tap(g, "?outcome=refused")
    local none <close> = tap(g, "?tool=no*e")
    local callers = {}
    for i = 1, 4 do callers[i] = g:connect() end
    local began, count = seconds_now(), 0
    wait.for_fact("more events than the rate", 60, function()
      for _, c in ipairs(callers) do refuse(c, 500) end
      count = count + 500 * #callers
      wait_refused(callers)
      -- the sum of both taps; their seconds may begin one event apart
      return g:status().counters.tap_events.dropped > 100
    end)
    -- the number of seconds of the clock in which events were sent
    local seconds = math.floor(seconds_now() - began) + 2
    for name, reader in pairs { all = all, some = some } do
      local shown, dropped
      wait.for_fact("all events of the tap " .. name, 30, function()
        shown, dropped = counts_of(reader, "refused")
        return shown + dropped >= count
      end)
      assert.equal(count, shown + dropped)
      assert.is_true(dropped > 0, name)
      assert.is_true(shown >= RATE, shown .. " events")
      assert.is_true(shown <= RATE * seconds, ("%d events in %d seconds"):format(shown, seconds))
    end
    local shown, dropped = counts_of(none, "refused")
    assert.equal(0, shown + dropped)
    local counters = g:status().counters.tap_events
    assert.equal(2 * count, counters.sent + counters.dropped)
    for _, c in ipairs(callers) do c:close() end
    for _, reader in ipairs { all, some } do reader:reset() end
    g:wait_status(function(now) return now.gauges.taps == 1 end)
    local closed
    wait.for_fact("both lines of the audit", 20, function() -- a thread of its own writes them
      closed = {}
      for sent, lost in g:file("audit.log"):gmatch '"event":"tap closed"[^\n]*"why":"(%d+) events, (%d+) dropped"' do
        closed[#closed + 1] = sent + lost
      end
      return #closed >= 2
    end)
    assert.same({ count, count }, closed)
  end)

  it("say how many events were dropped, also if nothing comes after them", function()
    local g <close> = start(2)
    local reader <close> = tap(g, "?outcome=refused")
    local callers, count = { g:connect(), g:connect() }, 0
    local function told()
      local shown, dropped = counts_of(reader, "refused")
      return shown + dropped
    end
    local function send(list, number)
      for _, c in ipairs(list) do refuse(c, number) end
      count = count + number * #list
      wait_refused(list)
      wait.for_fact("all events, or their number", 20, function() return told() >= count end)
    end
    for _ = 1, 5 do
      send(callers, 600)
      wait.quietly(0.1, function() return told() > count and "events that did not happen" end)
      send({ callers[1] }, 1) -- mostly in the same second: it reaches a reader for whom nothing waits
    end
    assert.equal(count, told())
    for _, c in ipairs(callers) do c:close() end
  end)

  it("count a tool whose name is read late against the rate once, and calls of other tools not at all", function()
    local g <close> = start(2)
    local reader <close> = tap(g, "?tool=add")
    local other <close> = tap(g, "?tool=sub")
    local me <close> = g:client "2025-03-26"
    local calls = {}
    for i = 1, 20 do
      calls[i] = { jsonrpc = "2.0", id = 1000 + i, method = "tools/call", params = { name = "add", arguments = { a = i, b = 1 } } }
    end
    local count = 0
    wait.for_fact("more events than the rate", 90, function()
      for _ = 1, 10 do
        local answer = client.request(g, { method = "POST", path = "/mcp", body = calls, headers = { accept = "application/json, text/event-stream",
          ["mcp-session-id"] = me.session } })
        assert.equal(200, answer.status, answer.body)
        count = count + #calls
      end
      return count >= 3000 or g:status().counters.tap_events.dropped > 0
    end)
    wait.for_fact("both events of each call", 30, function()
      local begun, dropped = counts_of(reader, "call")
      return begun + counts_of(reader, "answer") + dropped >= 2 * count
    end)
    local begun, dropped = counts_of(reader, "call")
    assert.equal(2 * count, begun + counts_of(reader, "answer") + dropped)
    assert.equal(0, counts_of(other, "call"))
    assert.equal(0, select(2, counts_of(other, "call")))
  end)

  it("show the begin of a call before its end, with calls on both workers", function()
    local g <close> = start(2)
    local reader <close> = tap(g, "?method=tools/call")
    local callers, count = {}, 0
    for i = 1, 4 do callers[i] = g:client(i % 2 == 0 and "2026-07-28" or "2025-11-25") end
    for round = 1, 50 do
      local running = {}
      for i, me in ipairs(callers) do running[i] = me:open("tools/call", { name = "add", arguments = { a = i, b = round } }) end
      for _, one in ipairs(running) do one:answer(20) end
      count = count + #callers
    end
    wait.for_fact("the end of each call", 20, function() return counts_of(reader, "answer") >= count end)
    local begun, ended = {}, 0
    for _, event in ipairs(reader:messages()) do
      if event.event == "call" then begun[event.call] = true end
      if event.event == "answer" then
        assert.is_true(begun[event.call], event.call .. " has ended before it began")
        ended = ended + 1
      end
    end
    assert.equal(count, ended)
    for _, me in ipairs(callers) do me:close() end
  end)

  it("send what comes within 40 ms to a reader at once, and no event waits for another", function()
    local g <close> = start(1)
    local reader <close> = tap(g, "?tool=add")
    local me <close> = g:client "2026-07-28"
    local began, count = seconds_now(), 0
    wait.for_fact("many events", 60, function()
      for _ = 1, 100 do me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }) end
      count = count + 100
      return seconds_now() - began > 0.5 or count >= 2000
    end)
    wait.for_fact("both events of each call, or their number", 20, function()
      local begun, dropped = counts_of(reader, "call")
      return begun + counts_of(reader, "answer") + dropped >= 2 * count
    end)
    local batches = g:status().counters.tap_batches
    local most = math.floor((seconds_now() - began) * 1000 / (BATCH_MS - LATE_MS)) + 2
    assert.is_true(batches >= 1 and batches <= most, ("%d batches for %d calls, at most %d"):format(batches, count, most))
    me:call("tools/call", { name = "add", arguments = { a = 3, b = 4 } }) -- no event follows this call
    wait.for_fact("both events of the last call", 20, function()
      local begun, dropped = counts_of(reader, "call")
      return begun + counts_of(reader, "answer") + dropped >= 2 * count + 2
    end)
  end)

  it("open and close while workers put events above the rate, and lose no count", function()
    local g <close> = start(2)
    local steady <close> = tap(g, "?outcome=refused&arguments=none")
    local callers, count = {}, 0
    for i = 1, 4 do callers[i] = g:connect() end
    for round = 1, 30 do
      for _, c in ipairs(callers) do refuse(c, 100) end
      count = count + 100 * #callers
      local passing = tap(g, round % 2 == 0 and "?outcome=ref*" or "?method=GET&sample=0.5")
      if round % 3 == 0 then passing:close() else passing:reset() end
    end
    wait_refused(callers)
    wait.for_fact("all events, or their number", 30, function()
      local shown, dropped = counts_of(steady, "refused")
      return shown + dropped >= count
    end)
    local shown, dropped = counts_of(steady, "refused")
    assert.equal(count, shown + dropped)
    g:wait_status(function(now) return now.gauges.taps == 1 end)
    for _, c in ipairs(callers) do c:close() end
    steady:close()
    g:wait_status(function(now) return now.gauges.taps == 0 end)
    assert.has_nothing_left(g)
  end)
end)
