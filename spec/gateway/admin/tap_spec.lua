-- GET /api/tap of the admin listener: calls as they begin and end, filters, redacted arguments, many readers, slow
-- ones, and the audit of it.
local client = require "spec.helpers.client"
local cjson = require "cjson.safe"
local gateway = require "spec.helpers.gateway"
local uv = require "luv"
local wait = require "spec.helpers.wait"

local token, other = ("o"):rep(32), ("p"):rep(32)
local scripts = {
  ["tools/add.lua"] = 'return tool { "Adds.", input = { a = t.integer, b = t.integer }, function(args) return args.a + args.b end }',
  ["tools/echo.lua"] = 'return tool { "Echoes.", input = { text = t.string }, function(args) return #args.text end }',
  ["tools/login.lua"] = [[return tool { "Takes everything.", input = { name = t.string, password = t.string, more = t.optional(t.any) },
    function(args) sleep(0.001) return args.name end }]],
  ["tools/fails.lua"] = 'return tool { "Fails.", function() return nil, "no luck" end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", function() log.info "holds" sleep(60) end }',
}

local function start(config, more)
  config = config or {}
  config.admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = token, eve = other }, view = { ann = ("v"):rep(32) } }, tap = config.tap }
  config.tap = nil
  local options = { scripts = scripts, config = config }
  for key, value in pairs(more or {}) do options[key] = value end
  return gateway.start(options)
end

local function request(query, bearer)
  return { path = "/api/tap" .. (query or ""), headers = { Authorization = "Bearer " .. (bearer or token) } }
end

-- A connection that taps; the tap is open when this returns.
local function tap(g, query, options)
  options = options or {}
  local reader = client.connect(g, { admin = true, buffer = options.buffer })
  reader:send(request(query, options.bearer))
  assert.equal(200, reader:read_head().status)
  reader:wait_event(function(event) return event.json and event.json.event == "tap opened" end)
  return reader
end

-- Waits for an event whose members have these values; a function checks a value.
local function expect(reader, wanted)
  return reader:wait_event(function(event)
    if type(event.json) ~= "table" then return false end
    for name, value in pairs(wanted) do
      if event.json[name] ~= value then return false end
    end
    return true
  end, 20).json
end

-- The events that have come so far, without what the tap says of itself.
local function events_of(reader)
  local list = {}
  for _, event in ipairs(reader:messages()) do
    if type(event) == "table" and not tostring(event.event):find "^tap " then list[#list + 1] = event end
  end
  return list
end

local function audit(g) return g:file "audit.log" end

describe("a tap", function()
  it("shows a part of the calls with sample, each with its end", function()
    local g <close> = start()
    local reader <close> = tap(g, "?sample=0.5")
    local me, begun, ended = g:client "2026-07-28", {}, {}
    for _ = 1, 200 do me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }) end
    local function count()
      begun, ended = {}, {}
      for _, event in ipairs(events_of(reader)) do
        if event.event == "call" then begun[#begun + 1] = event.call end
        if event.event == "answer" then ended[event.call] = true end
      end
      return #begun
    end
    wait.for_fact("half of the calls", 20, function() return count() > 50 end)
    wait.for_fact("each end", 20, function()
      count()
      for _, call in ipairs(begun) do
        if not ended[call] then return false end
      end
      return true
    end)
    assert.is_true(#begun < 200, #begun)
    for _, wrong in ipairs { "0", "2", "-1", "x", "nan" } do
      assert.equal(400, client.request(g, request("?sample=" .. wrong), { admin = true }).status, wrong)
    end
  end)

  it("shows each call when it begins and when it has ended, in every revision, on all workers", function()
    local g <close> = start { workers = 2 }
    local reader <close> = tap(g)
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
      local me = g:client(revision)
      me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
      local begun = expect(reader, { event = "call", method = "tools/call", revision = revision })
      assert.equal("add", begun.name)
      assert.equal("anonymous", begun.principal)
      assert.equal("127.0.0.1", begun.address)
      assert.matches("^%d+%-%d+$", begun.call)
      assert.matches("^%d%d%d%d%-%d%d%-%d%dT", begun.time)
      assert.same({ a = "integer", b = "integer" }, begun.arguments)
      assert.equal(revision ~= "2026-07-28", begun.session ~= nil)
      local ended = expect(reader, { event = "answer", call = begun.call, method = "tools/call" })
      assert.equal("ok", ended.outcome)
      assert.equal("number", type(ended.ms))
      assert.is_true(ended.out > 0)
      assert.is_nil(ended.arguments)
      me:close()
    end
    assert.equal("gone", expect(reader, { event = "session ended", transport = "sse" }).why)
    reader:close()
    g:wait_status(function(now) return now.gauges.taps == 0 end)
  end)

  it("shows how calls failed, and refusals", function()
    local g <close> = start()
    local reader <close> = tap(g)
    local me = g:client "2026-07-28"
    me:call("tools/call", { name = "fails", arguments = {} })
    assert.equal("failed", expect(reader, { event = "answer", name = "fails" }).outcome)
    me:call("tools/call", { name = "nothing", arguments = {} })
    local ended = expect(reader, { event = "answer", name = "nothing" })
    assert.equal("error", ended.outcome)
    assert.equal(-32602, ended.code)
    local held = me:open("tools/call", { name = "hold", arguments = {} })
    local begun = expect(reader, { event = "call", name = "hold" })
    assert.equal(200, client.request(g, { method = "DELETE", path = "/api/call/" .. begun.call,
      headers = { Authorization = "Bearer " .. token, ["moonpool-admin"] = "1" } }, { admin = true }).status)
    assert.equal("operator", expect(reader, { event = "answer", name = "hold" }).outcome)
    held:answer()
    me:close()
    assert.equal(404, client.request(g, { path = "/nowhere" }).status)
    assert.equal(404, expect(reader, { event = "refused", name = "/nowhere" }).status)
  end)

  it("shows what its filters admit, and nothing else", function()
    local g <close> = start()
    local all <close> = tap(g)
    local readers = {}
    for name, query in pairs {
      tool = "?tool=a*d", method = "?method=tools%2Flist", outcome = "?outcome=failed", principal = "?principal=nobody",
      anonymous = "?principal=anon*&tool=%66ails", slower = "?slower=3600000", session = "?session=00000000",
    } do readers[name] = tap(g, query) end
    local me = g:client "2026-07-28"
    me:call("tools/list", {})
    me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
    me:call("tools/call", { name = "fails", arguments = {} })
    expect(all, { event = "answer", name = "fails" })
    me:call("ping", {})
    expect(all, { event = "answer", method = "ping" })
    local got = {}
    for name, count in pairs { tool = 2, method = 2, outcome = 1, anonymous = 2 } do
      wait.for_fact(count .. " events of the filter " .. name, 20, function()
        got[name] = events_of(readers[name])
        return #got[name] >= count
      end)
      assert.equal(count, #got[name], name)
    end
    for _, name in ipairs { "principal", "slower", "session" } do assert.same({}, events_of(readers[name]), name) end
    assert.equal("add", got.tool[1].name)
    assert.equal("answer", got.outcome[1].event)
    assert.equal("fails", got.outcome[1].name)
    for _, reader in pairs(readers) do reader:close() end
    me:close()
  end)

  it("admits a call by the name that it calls, whatever else its params say, and however long they are", function()
    local g <close> = start()
    local add <close> = tap(g, "?tool=add")
    local others <close> = tap(g, "?tool=oth*")
    local me <close> = g:client "2025-11-25"
    local arguments = { a = 1, b = 2 }
    me:call("tools/call", { name = "add", arguments = arguments, _meta = { name = "other", uri = "other", taskId = "other" } })
    me:call("tools/call", { name = "add", arguments = arguments, uri = "other" })
    me:call("tools/call", { name = "add", arguments = arguments, _meta = { long = ("x"):rep(70000) } })
    local escaped = '{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"arguments":{"a":1,"b":2},"name":"\\u0061dd"}}'
    assert.equal(200, client.request(g, { method = "POST", path = "/mcp", body = escaped, headers = { ["content-type"] = "application/json",
      accept = "application/json, text/event-stream", ["mcp-session-id"] = me.session, ["mcp-protocol-version"] = "2025-11-25" } }).status)
    me:call("tools/call", { name = "other", arguments = {}, _meta = { name = "add" } })
    expect(others, { event = "answer", name = "other" })
    wait.for_fact("four calls and their ends", 20, function() return #events_of(add) >= 8 end)
    for _, event in ipairs(events_of(add)) do assert.equal("add", event.name) end
    assert.equal(2, #events_of(others))
    me:call("completion/complete", { ref = { type = "ref/prompt", name = "other" }, argument = { name = "add", value = "x" } })
    expect(others, { event = "answer", method = "completion/complete" })
  end)

  it("loses nothing while others are opened and closed, under calls on all workers", function()
    local g <close> = start(nil, { workers = 2 })
    local steady <close> = tap(g, "?tool=add&outcome=o*&arguments=none")
    local calls, callers = 0, {}
    for i = 1, 4 do callers[i] = g:client(i % 2 == 0 and "2026-07-28" or "2025-11-25") end
    for round = 1, 25 do
      local passing = tap(g, round % 2 == 0 and "?tool=none&session=*&principal=anon*" or "?method=tools*&sample=0.5")
      local running = {}
      for i, me in ipairs(callers) do running[i] = me:open("tools/call", { name = "add", arguments = { a = i, b = round } }) end
      if round % 3 == 0 then passing:reset() else passing:close() end
      for _, one in ipairs(running) do one:answer() end
      calls = calls + #callers
    end
    wait.for_fact("each call", 20, function() return #events_of(steady) >= calls end)
    assert.equal(calls, #events_of(steady))
    g:wait_status(function(now) return now.gauges.taps == 1 end)
    for _, me in ipairs(callers) do me:close() end
  end)

  it("refuses a query that makes no sense, and a caller without the role", function()
    local g <close> = start()
    for query, why in pairs {
      ["?tools=x"] = "the query may have", ["?tool=%zz"] = "percent-encoded", ["?tool=%6"] = "percent-encoded", ["?tool=%"] = "percent-encoded",
      ["?tool=%00"] = "percent-encoded", ["?tool=" .. ("x"):rep(300)] = "too long", ["?slower=1s"] = "a number of milliseconds",
      ["?slower=-1"] = "a number", ["?slower=999999999999"] = "a number", ["?seconds=0"] = "1 to 3600", ["?seconds=3601"] = "1 to 3600",
      ["?arguments=all"] = "none, names, shapes or full",
    } do
      local answer = client.request(g, request(query), { admin = true })
      assert.equal(400, answer.status, query)
      assert.truthy(answer.body:find(why, 1, true), query .. ": " .. answer.body)
    end
    assert.equal(403, client.request(g, request("?arguments=full"), { admin = true }).status)
    assert.equal(403, client.request(g, request("", ("v"):rep(32)), { admin = true }).status)
    assert.equal(401, client.request(g, { path = "/api/tap" }, { admin = true }).status)
    local page = request ""
    page.headers.Origin = "http://evil.example"
    assert.equal(403, client.request(g, page, { admin = true }).status)
    local head = request ""
    head.method = "HEAD"
    assert.equal(200, client.request(g, head, { admin = true }).status)
    assert.equal(0, g:status().gauges.taps)
    assert.has_nothing_left(g)
  end)

  it("shows types and sizes of arguments, and no value, unless the configuration allows it", function()
    local secret = "hunter2-" .. ("s"):rep(40)
    local deep = { a = { b = { c = { d = { e = secret } } } } }
    local arguments = { name = secret, password = secret, more = { list = { secret, secret }, yes = true, n = 12345678, x = 1.5, deep = deep } }
    local shapes = {
      name = "string of 48", password = "string of 48",
      more = { list = "array of 2", yes = "boolean", n = "integer", x = "number", deep = { a = { b = "object of 1" } } },
    }
    local g <close> = start { tap = "full" }
    local readers = {}
    for _, form in ipairs { "none", "names", "shapes", "full" } do readers[form] = tap(g, "?arguments=" .. form) end
    readers.default = tap(g)
    readers.ends = tap(g, "?outcome=ok")
    local me = g:client "2026-07-28"
    me:call("tools/call", { name = "login", arguments = arguments })
    me:call("tools/call", { name = "echo", arguments = { text = ("\n\"\\é"):rep(4000) } })
    me:call("tools/call", { name = "login", arguments = { name = "x", password = ("x"):rep(70000) } })
    local got = {}
    for form, reader in pairs(readers) do
      got[form] = expect(reader, { event = form == "ends" and "answer" or "call", name = "login" }).arguments
      expect(reader, { event = "answer", name = "echo" })
      if form ~= "none" then
        local large = reader:wait_event(function(event) return type(event.json) == "table" and type(event.json.arguments) == "string" end)
        assert.matches("^params of %d+ bytes$", large.json.arguments)
      end
      for _, event in ipairs(reader.events) do
        if form ~= "full" and event.data then assert.is_nil(event.data:find("hunter2", 1, true), form) end
      end
      reader:close()
    end
    assert.is_nil(got.none)
    table.sort(got.names)
    assert.same({ "more", "name", "password" }, got.names)
    assert.same(shapes, got.shapes)
    assert.same(shapes, got.default)
    assert.same(shapes, got.ends)
    assert.same(arguments, got.full)
    me:close()
  end)

  it("shows at most what admin.tap allows", function()
    local g <close> = start { tap = "names" }
    assert.equal(403, client.request(g, request("?arguments=shapes"), { admin = true }).status)
    local reader <close> = tap(g)
    local me = g:client "2026-07-28"
    me:call("tools/call", { name = "add", arguments = { a = 1 } })
    assert.same({ "a" }, expect(reader, { event = "call", name = "add" }).arguments)
    me:close()
  end)

  it("leaves an audit line when it opens and when it closes: who, which filter, how much", function()
    local g <close> = start { log = { audit = "audit.log" } }
    local reader <close> = tap(g, "?tool=add")
    local me = g:client "2026-07-28"
    me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
    expect(reader, { event = "answer" })
    reader:reset()
    wait.for_fact("both lines of the audit", 20, function() return audit(g):find '"event":"tap closed"' end)
    assert.matches('"event":"tap opened"[^\n]*"caller":"token joe"[^\n]*"why":"tool=add"', audit(g))
    assert.matches('"event":"tap closed"[^\n]*"caller":"token joe"[^\n]*"why":"2 events, 0 dropped"', audit(g))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("takes eight readers, and frees the place of one that has left", function()
    local g <close> = start()
    local readers = {}
    for i = 1, 8 do readers[i] = tap(g) end
    assert.equal(503, client.request(g, request(), { admin = true }).status)
    assert.equal(8, g:status().gauges.taps)
    assert.equal(1, g:status().counters.refused.admin_readers)
    readers[3]:reset()
    g:wait_status(function(now) return now.gauges.taps == 7 end)
    readers[3] = tap(g)
    local me = g:client "2026-07-28"
    me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
    for i = 1, 8 do expect(readers[i], { event = "answer", name = "add" }) end
    me:close()
    for i = 1, 8 do readers[i]:close() end
    g:wait_status(function(now) return now.gauges.taps == 0 end)
    assert.has_nothing_left(g)
  end)

  it("is one of eight, and gets no more than 1,000 events in a second and 4 MiB", function()
    local g <close> = start({ tap = "full" }, { constants = { stall_ms = 600000, tap_events = 3, tap_bytes = 65536 } })
    local one <close> = tap(g)
    local slow <close> = tap(g, "?arguments=full&method=tools*", { buffer = 64 << 10 })
    local others = {}
    for i = 1, 6 do others[i] = tap(g) end
    local refused = client.request(g, request(), { admin = true })
    for _, one_more in ipairs(others) do one_more:close() end
    assert.same({ 503, "8 taps are open: end one of them" }, { refused.status, refused:json().error })
    local me = g:client "2026-07-28"
    local began, count = uv.hrtime(), 20
    for _ = 1, count do me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } }) end
    wait.for_fact("the rest to be dropped", 20, function()
      local list, told = events_of(one), 0
      for _, event in ipairs(list) do told = told + (event.event == "dropped" and event.count or 0) end
      local shown = 0
      for _, event in ipairs(list) do shown = shown + (event.event ~= "dropped" and 1 or 0) end
      assert.is_true(shown <= 3 * (2 + (uv.hrtime() - began) // 1e9), shown)
      return shown + told == 2 * count
    end)
    -- an event of this size never fits into the reader's queue
    me:call("tools/call", { name = "echo", arguments = { text = ("x"):rep(70000) } })
    local event = expect(slow, { event = "dropped" })
    assert.is_true(event.count >= 1)
    for _, shown in ipairs(events_of(slow)) do assert.is_true(shown.name ~= "echo" or shown.event == "answer") end
    me:close()
  end)

  it("drops events for a reader that does not read, and says how many; others lose nothing", function()
    local g <close> = start({ tap = "full" }, { constants = { stall_ms = 600000 } })
    local slow <close> = tap(g, "?arguments=full&tool=echo", { buffer = 256 << 10 })
    local quick <close> = tap(g, "?tool=echo&outcome=ok")
    slow:pause()
    local me, text, count = g:client "2026-07-28", ("x"):rep(60000), 0
    wait.for_fact("events to be dropped", 60, function()
      me:call("tools/call", { name = "echo", arguments = { text = text } })
      count = count + 1
      return count % 20 == 0 and g:status().counters.tap_events.dropped > 0
    end)
    local dropped = g:status().counters.tap_events.dropped
    assert.is_true(count * 60000 > 4 << 20)
    wait.for_fact("all events of the other reader", 20, function() return #events_of(quick) == count end)
    slow:resume()
    assert.equal(dropped, expect(slow, { event = "dropped" }).count)
    assert.equal(2 * count - dropped, #events_of(slow) - 1)
    me:call("tools/call", { name = "echo", arguments = { text = "later" } })
    expect(slow, { event = "answer", name = "echo" })
    me:close()
  end)

  it("is one of eight under load: each gets or is told of every event, and one that does not read costs its own queue", function()
    local g <close> = start({ tap = "full" }, { workers = 2, constants = { stall_ms = 600000 } })
    local readers = {}
    for i, query in ipairs {
      "?tool=echo", "?tool=e*&arguments=full", "?method=tools*", "?principal=anon*", "?arguments=none", "?arguments=names", "?tool=*",
    } do
      readers[i] = tap(g, query)
    end
    local slow <close> = tap(g, "?arguments=full&tool=echo", { buffer = 64 << 10 })
    slow:pause()
    local callers, text, count = {}, ("x"):rep(60000), 0
    for i = 1, 4 do callers[i] = g:client "2026-07-28" end
    local function call_all()
      local running = {}
      for i, me in ipairs(callers) do running[i] = me:open("tools/call", { name = "echo", arguments = { text = text } }) end
      for _, one in ipairs(running) do one:answer(20) end
      count = count + #callers
    end
    wait.for_fact("events to be dropped", 60, function()
      call_all()
      return count % 20 == 0 and g:status().counters.tap_events.dropped > 0
    end)
    local kept_most = count
    for _ = 1, 50 do call_all() end -- twelve more megabytes, for which the reader's queue has no room
    slow:resume()
    readers[#readers + 1] = slow
    for number, reader in ipairs(readers) do
      local shown, told, texts
      wait.for_fact("all events of reader " .. number, 30, function()
        shown, told, texts = 0, 0, 0
        for _, event in ipairs(events_of(reader)) do
          if type(event.arguments) == "table" and event.arguments.text == text then texts = texts + 1 end
          if event.event == "dropped" then told = told + event.count else shown = shown + 1 end
        end
        return shown + told >= 2 * count
      end)
      assert.equal(2 * count, shown + told)
      if reader == slow then
        assert.is_true(told > 0)
        assert.is_true(texts <= kept_most + 40, texts .. " texts") -- the buffers of the sockets may grow a little
      end
    end
    for _, reader in ipairs(readers) do reader:close() end
    for _, me in ipairs(callers) do me:close() end
    g:wait_status(function(now) return now.gauges.taps == 0 end)
    assert.has_nothing_left(g)
  end)

  it("ends when its time is over, and with its token", function()
    local g <close> = start()
    local short <close> = tap(g, "?seconds=1")
    assert.equal("the time of the tap is over", expect(short, { event = "tap closed" }).why)
    short:wait_end()
    local joe <close> = tap(g)
    local eve <close> = tap(g, "", { bearer = other })
    local path = g.dir .. "/moonpool.yaml"
    local file = assert(io.open(path))
    local config = cjson.decode(file:read "a")
    file:close()
    config.admin.tokens.operate = { joe = token }
    config.admin.tokens.view.eve = other
    file = assert(io.open(path, "w"))
    file:write(cjson.encode(config))
    file:close()
    assert.matches("role operate", expect(eve, { event = "tap closed" }).why)
    eve:wait_end()
    assert.equal(1, g:status().gauges.taps)
    joe:close()
    g:wait_status(function(now) return now.gauges.taps == 0 end)
  end)

  it("ends with the gateway, which does not wait for it", function()
    local g <close> = start()
    local reader <close> = tap(g)
    g:stop()
    reader:wait_closed()
  end)
end)

describe("moonpool tap", function()
  local function run(g, ...)
    return gateway.exec({ "tap", "--admin", "127.0.0.1:" .. g.admin_port, ... }, { env = { MOONPOOL_ADMIN_TOKEN = token } })
  end

  it("prints a line for the beginning and the end of each call", function()
    local g <close> = start()
    local process = gateway.spawn(gateway.binary, { "tap", "--admin", "127.0.0.1:" .. g.admin_port, "--tool", "add*" }, gateway.new_folder(),
      { env = { MOONPOOL_ADMIN_TOKEN = token } })
    g:wait_status(function(now) return now.gauges.taps == 1 end)
    local me = g:client "2026-07-28"
    me:call("tools/call", { name = "add", arguments = { a = 1, b = 2 } })
    local function output()
      local file <close> = assert(io.open(process.dir .. "/stdout"))
      return file:read "a"
    end
    wait.for_fact("two lines", 10, function() return output():find "\n.*\n" end)
    local first, second = output():match "^(.-)\n(.-)\n"
    assert.matches("^%d%d:%d%d:%d%d%.%d%d%d  call       %d%-%d+  tools/call  add  anonymous", first)
    assert.truthy(first:find("{a: integer, b: integer}", 1, true), first)
    assert.matches("^%d%d:%d%d:%d%d%.%d%d%d  ok         %d%-%d+  tools/call  add", second)
    require "luv".kill(process.pid, "sigterm")
    g:wait_status(function(now) return now.gauges.taps == 0 end)
    me:close()
  end)

  it("ends after --for, and says what is wrong", function()
    local g <close> = start()
    local code, out, err = run(g, "--for", "1s", "--json")
    assert.equal(0, code, err)
    assert.truthy(out:find('"event":"tap opened"', 1, true), out)
    assert.truthy(out:find('"event":"tap closed"', 1, true), out)
    local function fails(wanted, why, ...)
      local failed, _, text = run(g, ...)
      assert.equal(wanted, failed)
      assert.truthy(text:find(why, 1, true), text)
    end
    fails(1, "admin.tap", "--arguments", "full")
    fails(2, "as in 100ms", "--slower", "soon")
    fails(2, "from 1s to 1h", "--for", "2h")
    local without, _, text = gateway.exec({ "tap", "--admin", "127.0.0.1:" .. g.admin_port }, { env = { MOONPOOL_ADMIN_TOKEN = "" } })
    assert.equal(1, without)
    assert.truthy(text:find("a token", 1, true), text)
  end)
end)
