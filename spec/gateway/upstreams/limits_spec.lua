-- Limits over upstreams that no other spec of upstreams needs: each refuses what is above it in words, and counts it.
local cjson = require "cjson.safe"
local credentials = require "spec.helpers.credentials"
local task_client = require "spec.helpers.task_client"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function start(u, limits, options)
  options = options or {}
  options.workers, options.constants = options.workers or 1, {}
  for name, value in pairs(limits) do options.constants["upstream_" .. name] = value end
  return upstream.gateway({ one = u }, options)
end

local function refused(g, what) return g:status().counters.refused[what] or 0 end

local function resource(uri) return ('{"uri":"%s","name":"%s"}'):format(uri, uri) end

describe("limits over upstreams", function()
  it("links and links_per_upstream bound the links that can be read", function()
    for _, limits in ipairs { { links = 1 }, { links_per_upstream = 1 } } do
      local u <close> = upstream.start { revision = "2025-11-25" }
      u:when("resources/read", function(x)
        x:result(('{"contents":[{"uri":"%s","text":"text"}]}'):format(x.params.uri))
      end)
      local g <close> = start(u, limits)
      local c <close> = g:client "2025-11-25"
      local read = {}
      for i = 1, 3 do
        local uri = "made:/" .. i
        u:when("tools/call echo", function(x) x:result(('{"content":[{"type":"resource_link","uri":"%s","name":"n"}]}'):format(uri)) end, 1)
        c:result("tools/call", { name = "one_echo", arguments = {} })
        read[i] = c:call("resources/read", { uri = uri }).result ~= nil
      end
      assert.same({ true, false, false }, read)
      assert.equal(2, refused(g, "upstream_links"))
    end
  end)

  it("subscribed bounds the resources that are subscribed to at one upstream", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local u <close> = upstream.start { revision = revision }
      u:offer("resources", { resource "file:///a", resource "file:///b" })
      local g <close> = start(u, { subscribed = 1 })
      local c <close> = g:client "2025-11-25"
      assert.is_table(c:result("resources/subscribe", { uri = "file:///a" }))
      assert.is_table(c:result("resources/subscribe", { uri = "file:///a" }))
      local err = c:call("resources/subscribe", { uri = "file:///b" }).error
      assert.truthy(err.message:find("1 resources of this upstream are subscribed to", 1, true), err.message)
      assert.equal(1, refused(g, "upstream_subscriptions"))
    end
  end)

  it("subscribed_per_principal leaves room to others: a client that has its share is refused, however many sessions it opens", function()
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local u <close> = upstream.start { revision = revision }
      u:offer("resources", { resource "file:///a", resource "file:///b", resource "file:///c", resource "file:///d" })
      local g <close> = start(u, { subscribed = 4, subscribed_per_principal = 2 }, { scripts = { ["auth/main.lua"] = credentials.script } })
      local greedy <close> = g:client("2025-11-25", { token = "ann-1" })
      local again <close> = g:client("2025-11-25", { token = "ann-1" })
      local other <close> = g:client("2025-11-25", { token = "bob-1" })
      assert.is_table(greedy:result("resources/subscribe", { uri = "file:///a" }))
      assert.is_table(greedy:result("resources/subscribe", { uri = "file:///b" }))
      for _, c in ipairs { greedy, again } do
        local err = c:call("resources/subscribe", { uri = "file:///c" }).error
        assert.truthy(err.message:find("your share: unsubscribe", 1, true), err.message)
      end
      assert.equal(2, refused(g, "upstream_subscriptions"))
      -- uses no place of the limit: the gateway has subscribed to this URI already
      assert.is_table(other:result("resources/subscribe", { uri = "file:///a" }))
      assert.is_table(other:result("resources/subscribe", { uri = "file:///c" }))
      greedy:result("resources/unsubscribe", { uri = "file:///b" })
      assert.is_table(greedy:result("resources/subscribe", { uri = "file:///d" }))
    end
  end)

  it("subscribed_per_principal bounds what one request listens to, too; what is subscribed to already is taken", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("resources", { resource "file:///a", resource "file:///b", resource "file:///c", resource "file:///d" })
    local g <close> = start(u, { subscribed_per_principal = 2 })
    local c <close> = g:client "2026-07-28"
    assert.equal(4, #c:result("resources/list").resources)
    local kept = {}                -- keeps these streams open until the end, so that their subscriptions stay
    for _, asked in ipairs { { "file:///a", "file:///b", "file:///c", "file:///d" }, { "file:///c", "file:///a", "file:///d", "file:///b" } } do
      local listening = c:open("subscriptions/listen", { notifications = { resourceSubscriptions = asked } })
      kept[#kept + 1] = listening
      local got = listening:wait_event("notifications/subscriptions/acknowledged", 20).json.params.notifications.resourceSubscriptions
      table.sort(got)
      assert.same({ "file:///a", "file:///b" }, got)
    end
    assert.equal(4, refused(g, "upstream_subscriptions"))
    for _, listening in ipairs(kept) do listening:close() end
  end)

  it("subscribed_tasks bounds the tasks of one upstream that are listened for; others are polled", function()
    local u <close> = upstream.start { revision = "2026-07-28", tasks = true }
    u.handlers.task_hold = function(x) table.insert(u.held, x) end
    u:offer("tools", { "task_hold" })
    u.task_poll = 1000
    local g <close> = start(u, { subscribed_tasks = 1 })
    local c <close> = g:client("2026-07-28", { capabilities = task_client.CAN })
    local ids = {}
    for i = 1, 3 do ids[i] = task_client.result(g, c, "tools/call", { name = "one_task_hold", arguments = {} }).taskId end
    wait.for_fact("two tasks over the limit", 20, function() return refused(g, "upstream_subscriptions") == 2 end)
    for _, x in ipairs(u:listening()) do assert.is_true(#(x.filter.taskIds or {}) <= 1) end
    u:wait_held(3)
    u:release()
    for _, id in ipairs(ids) do task_client.wait(g, c, id, "completed") end
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
  end)

  it("list_pages and definition bound what is read of a list", function()
    local u <close> = upstream.start { revision = "2025-11-25", page = 2 }
    local long = ('{"name":"long","description":"%s","inputSchema":{"type":"object"}}'):format(("x"):rep(2000))
    u:offer("tools", { "a", long, "b", "c", "d" })
    local g <close> = start(u, { list_pages = 2, definition = 1024 })
    local c <close> = g:client "2025-11-25"
    local names = {}
    for i, tool in ipairs(c:result("tools/list").tools) do names[i] = tool.name end
    assert.equal("one_a one_b one_c", table.concat(names, " "))
    assert.equal(2, refused(g, "upstream_lists"))
    g:wait_log("upstream list incomplete", { hint = "a list has at most 10,000 entries, 32 MiB and 100 pages",
      why = "its definition has more than 1024 bytes" })
  end)

  it("rounds bounds how often an upstream answers a request with questions", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:offer("tools", { "need" })
    u.handlers.need = function(_, reply)
      reply '{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list","params":{}}},"requestState":"s"}'
    end
    local g <close> = start(u, { rounds = 2 })
    local c <close> = g:client("2025-11-25", { capabilities = { roots = {} } })
    local stream = c:open("tools/call", { name = "one_need", arguments = {} })
    for n = 1, 2 do
      local asked = wait.for_fact("question " .. n, 20, function()
        local found = {}
        for _, one in ipairs(stream:messages()) do
          if one.method == "roots/list" then found[#found + 1] = one end
        end
        return found[n]
      end)
      c:post { jsonrpc = "2.0", id = asked.id, result = { roots = {} } }
    end
    local _, why = upstream.failure(stream:answer(20), "unknown", "asks")
    assert.truthy(why:find("asked more than 2 times", 1, true), why)
    assert.equal(1, refused(g, "upstream_rounds"))
    assert.equal(3, u:ran "need")
  end)

  it("questions_per_result bounds the questions of one result", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:offer("tools", { "need" })
    u.handlers.need = function(x, reply)
      if x.params.inputResponses then return reply(x:complete '{"content":[]}') end
      local n, list = x.params.arguments.n, {}
      for i = 1, n do list[i] = ('"q%d":{"method":"roots/list","params":{}}'):format(i) end
      reply('{"resultType":"input_required","inputRequests":{' .. table.concat(list, ",") .. '},"requestState":"s"}')
    end
    local g <close> = start(u, { questions_per_result = 2 })
    local c <close> = g:client("2026-07-28", { capabilities = { roots = {} } })
    assert.equal("input_required", c:result("tools/call", { name = "one_need", arguments = { n = 2 } }).resultType)
    local _, why = upstream.failure(c:call("tools/call", { name = "one_need", arguments = { n = 3 } }), "unknown", "asks")
    assert.truthy(why:find("asked more than 2 questions at once", 1, true), why)
    assert.equal(1, refused(g, "upstream_rounds"))
  end)

  it("links_per_result bounds the links of one result that can be read", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:when("resources/read", function(x) x:result(('{"contents":[{"uri":"%s","text":"text"}]}'):format(x.params.uri)) end)
    u:when("tools/call echo", function(x)
      local list = {}
      for i = 1, 3 do list[i] = ('{"type":"resource_link","uri":"made:/%d","name":"n"}'):format(i) end
      x:result('{"content":[' .. table.concat(list, ",") .. "]}")
    end)
    local g <close> = start(u, { links_per_result = 2 })
    local c <close> = g:client "2025-11-25"
    assert.equal(3, #c:result("tools/call", { name = "one_echo", arguments = {} }).content)
    for i = 1, 3 do assert.equal(i <= 2, c:call("resources/read", { uri = "made:/" .. i }).result ~= nil) end
    assert.equal(1, refused(g, "upstream_links"))
  end)

  it("journal bounds what is kept while a client is asked", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = start(u, { journal = 4096 }, { scripts = { ["tools/both.lua"] = [[
      return tool { "Calls and asks.", input = { bytes = t.number }, function(args, call)
        try(upstream "one":call("big", { bytes = args.bytes }))
        return try(call:elicit("name", "Name?", { name = t.string })).name
      end }]] } })
    local c <close> = g:client("2026-07-28", { capabilities = { elicitation = { form = { [" "] = 1 } } } })
    assert.equal("input_required", c:result("tools/call", { name = "both", arguments = { bytes = 100 } }).resultType)
    local answer = c:call("tools/call", { name = "both", arguments = { bytes = 6000 } })
    assert.truthy(cjson.encode(answer):find("too large to keep while the client is asked", 1, true), cjson.encode(answer))
    assert.equal(1, refused(g, "upstream_journals"))
  end)
end)

describe("`calls` of an upstream that a reload raises", function()
  it("lets calls run at once that wait already", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = { one = { calls = 1, waiting = 4 } }, config = { scripts = { watch = "false" } } })
    local c <close> = g:client "2025-11-25"
    local streams = {}
    for i = 1, 4 do streams[i] = c:open("tools/call", { name = "one_hold", arguments = {} }) end
    u:wait_held(1)
    g:wait_status(function(status) return status.upstreams.one.waiting == 3 end)
    local file = assert(io.open(g.dir .. "/moonpool.yaml"))
    local config = cjson.decode(file:read "a")
    file:close()
    config.upstreams.one.calls = 3
    file = assert(io.open(g.dir .. "/moonpool.yaml", "w"))
    file:write(cjson.encode(config))
    file:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    u:wait_held(3)
    assert.equal(1, g:status().upstreams.one.waiting)
    u:release()
    u:wait_held(1)
    u:release()
    for i = 1, 4 do assert.equal("released", upstream.text(streams[i]:answer())) end
    assert.equal(0, g:status().upstreams.one.running)
  end)
end)
