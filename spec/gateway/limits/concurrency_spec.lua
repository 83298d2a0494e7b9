-- `concurrency` of a tool: limits the calls of it that run at once, over all workers; a turn ends with its call,
-- however the call ends.
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/one.lua"] = [[
    local running, most = 0, 0
    return tool { "One at a time.", concurrency = 1, timeout = 20, input = { how = t.string, n = t.integer { default = 0 } }, function(args)
      running = running + 1
      most = math.max(most, running)
      local _ <close> = closing(function() running = running - 1 end)
      log.info("runs", { n = args.n })
      if args.how == "hold" then sleep(60) end
      if args.how == "fail" then fail "no" end
      if args.how == "break" then error "broken" end
      if args.how == "spin" then while true do end end
      sleep(0.01)
      return "most " .. most
    end }]],
  ["tools/short.lua"] = [[return tool { "Short.", concurrency = 1, timeout = 0.3, function() sleep(60) end }]],
  ["tools/ok.lua"] = [[return tool { "Ok.", function() return "ok" end }]],
}

describe("concurrency", function()
  local g

  lazy_setup(function() g = gateway.start { scripts = scripts, workers = 1, config = { limits = { call = { cpu = "200ms" } } } } end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211

  local function one(c, how, n) return c:open("tools/call", { name = "one", arguments = { how = how, n = n } }) end

  it("makes later calls wait, in order, and lets other tools run", function()
    local c <close> = g:client "2026-07-28"
    local holder = one(c, "hold", 100)
    g:wait_log("runs", { n = "100" })
    local streams = {}
    for i = 1, 20 do
      streams[i] = one(c, "run", i)
      g:wait_status(function(status) return status.gauges.calls_waiting == i end)
    end
    assert.equal("ok", c:result("tools/call", { name = "ok" }).content[1].text)
    holder:hang_up()
    local place = 1
    for i = 1, 20 do
      assert.equal("most 1", streams[i]:answer().result.content[1].text)
      g:wait_log("runs", { n = tostring(i) }) -- the log is written by a thread of its own, so the answer can be there first
      place = assert(g:log():find(" n=" .. i .. "%f[%D]", place), "call " .. i .. " ran out of order")
    end
  end)

  for _, how in ipairs { "fail", "break", "spin" } do
    it("has the turn back after one that ends by " .. how, function()
      local c <close> = g:client "2026-07-28"
      for _ = 1, 3 do
        local answer = one(c, how):answer()
        assert.truthy(answer.error or answer.result.isError)
      end
      assert.equal("most 1", one(c, "run"):answer().result.content[1].text)
    end)
  end

  it("gets the turn back from a call that was cancelled while it ran or waited", function()
    local c <close> = g:client "2026-07-28"
    local streams = {}
    for i = 1, 6 do streams[i] = one(c, "hold") end
    g:wait_status(function(status) return status.gauges.requests_in_flight == 6 end)
    for _, i in ipairs { 4, 1, 2, 6, 5, 3 } do streams[i]:hang_up() end
    assert.equal("most 1", one(c, "run"):answer().result.content[1].text)
  end)

  it("counts the wait as the call's time", function()
    local c <close> = g:client "2026-07-28"
    local streams = {}
    for i = 1, 3 do streams[i] = c:open("tools/call", { name = "short" }) end
    for i = 1, 3 do assert.equal("the call took too long", streams[i]:answer().error.message) end
  end)

  it("leaves nothing behind", function() assert.has_nothing_left(g) end)
end)

describe("turns of all workers", function()
  local g

  -- Records which turn the call has, and holds it if the argument says so.
  local body = [[
    local mine <close> = host.semaphore.take("gate", %d)
    if not mine then return "refused" end
    host.store.set("turn:" .. %d, tostring(host.store.incr("turns", 1)))
    if %s then host.task.event():wait() end
    return host.store.get("turn:" .. %d)]]

  local function code(n, most, holds) return trusted.code(body:format(most or 1, n, holds and "true" or "false", n)) end

  lazy_setup(function() g = trusted.start { constants = { call_waiting = 30 } } end)
  lazy_teardown(function() local _ <close> = g end) -- luacheck: ignore 211
  before_each(function()
    local c <close> = g:client "2026-07-28"
    trusted.run(c, 'for _, key in ipairs(host.store.keys "turn") do host.store.delete(key) end')
  end)

  local function wait_waiting(n) g:wait_status(function(status) return status.gauges.calls_waiting == n end) end

  local function wait_holds(n)
    local c <close> = g:client "2026-07-28"
    wait.for_fact("call " .. n .. " to have its turn", 20, function() return trusted.run(c, 'return host.store.get("turn:' .. n .. '")') end)
  end

  it("are given in the order of the requests, across workers", function()
    local one, two = trusted.workers(g)
    local holder = one:open("tools/call", code(0, 1, true))
    wait_holds(0)
    local streams = {}
    for i = 1, 20 do
      streams[i] = (i % 3 == 0 and one or two):open("tools/call", code(i))
      wait_waiting(i)
    end
    holder:hang_up()
    for i = 1, 20 do assert.equal(tostring(i + 1), (trusted.read(streams[i]:answer())), "call " .. i) end
    one:close()
    two:close()
  end)

  it("are given back by a call that is cancelled while it has its turn, waits for it, or is about to get it", function()
    local one, two = trusted.workers(g)
    for round = 1, 3 do
      local streams = {}
      for i = 1, 12 do
        streams[i] = (i % 2 == 0 and one or two):open("tools/call", code(i, 2, true))
        if i <= 2 then wait_holds(i) else wait_waiting(i - 2) end
      end
      local order = ({ { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, { 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 }, { 5, 1, 8, 2, 3, 12, 4, 6, 11, 7, 9, 10 } })[round]
      for _, i in ipairs(order) do streams[i]:hang_up() end
      assert.truthy(trusted.read(one:open("tools/call", code(100 + round, 1)):answer()))
      wait_waiting(0)
    end
    one:close()
    two:close()
  end)

  it("have the number that the last caller gave", function()
    local one, two = trusted.workers(g)
    local holder = one:open("tools/call", code(0, 1, true))
    wait_holds(0)
    local waiter = two:open("tools/call", code(1, 1))
    wait_waiting(1)
    local newcomer = one:open("tools/call", code(2, 3))
    local got = { (trusted.read(waiter:answer())), (trusted.read(newcomer:answer())) }
    table.sort(got)
    assert.same({ "2", "3" }, got)
    holder:hang_up()
    one:close()
    two:close()
  end)

  it("have a cap on the calls that wait", function()
    local one, two = trusted.workers(g)
    local streams = { one:open("tools/call", code(0, 1, true)) }
    wait_holds(0)
    for i = 1, 30 do streams[#streams + 1] = (i % 2 == 0 and one or two):open("tools/call", code(i, 1, true)) end
    wait_waiting(30)
    local before = g:status().counters.refused.waiting
    assert.equal("refused", trusted.read(two:open("tools/call", code(31)):answer()))
    assert.equal(before + 1, g:status().counters.refused.waiting)
    for _, stream in ipairs(streams) do stream:hang_up() end
    wait_waiting(0)
    one:close()
    two:close()
  end)

  it("leave nothing behind", function() assert.has_nothing_left(g) end)
end)

describe("a tool with 'concurrency'", function()
  local function text(how) return ([[
    return tool { "Two at a time.", concurrency = 2, input = { hold = t.boolean { default = false } }, function(args)
      local running = store.incr "running"
      local _ <close> = closing(function() store.incr("running", -1) end)
      if running > (store.get "most" or 0) then store.set("most", running) end
      if args.hold then store.incr "held" sleep(60) end
      sleep(0.005)
      return "%s " .. store.get "most"
    end }]]):format(how) end

  local function call(c, hold) return c:open("tools/call", { name = "two", arguments = { hold = hold } }) end

  it("runs at most its number of calls in all workers, also while a new generation takes over", function()
    local g <close> = gateway.start { workers = 3, scripts = { ["tools/two.lua"] = text "old" } }
    local clients, streams = {}, {}
    for i = 1, 6 do clients[i] = g:client "2026-07-28" end
    for i = 1, 60 do streams[i] = call(clients[i % 6 + 1]) end
    for i = 1, 60 do assert.equal("old 2", (streams[i]:answer().result.content[1].text:gsub("old 1", "old 2"))) end
    local holders = { call(clients[1], true), call(clients[2], true) }
    g:wait_status(function(status) return status.gauges.requests_in_flight == 2 end)
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/two.lua", "wb"))
    file:write(text "new")
    file:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    g:wait_log "reloaded"
    streams = {}
    for i = 1, 10 do streams[i] = call(clients[i % 6 + 1]) end
    g:wait_status(function(status) return status.gauges.calls_waiting == 10 end)
    for _, holder in ipairs(holders) do holder:hang_up() end
    for i = 1, 10 do assert.equal("new 2", streams[i]:answer().result.content[1].text) end
    for _, c in ipairs(clients) do c:close() end
    assert.has_nothing_left(g)
  end)

  it("refuses calls where too many wait, and ends all waiting calls when the gateway stops", function()
    local g <close> = gateway.start { scripts = { ["tools/two.lua"] = text "it" }, constants = { call_waiting = 1 }, config = { limits = { drain = "50ms" } } }
    local c = g:client "2026-07-28"
    local streams = {}
    for i = 1, 3 do
      streams[i] = call(c, true)
      g:wait_status(function(status) return status.gauges.requests_in_flight == i and (i < 3 or status.gauges.calls_waiting == 1) end)
    end
    local result = call(c):answer().result
    assert.is_true(result.isError)
    assert.equal("the tool is busy: too many calls of it wait already", result.content[1].text)
    g:signal "sigterm"
    for i = 1, 3 do assert.equal("the gateway is stopping", streams[i]:answer().error.message) end
    c:close()
  end)
end)
