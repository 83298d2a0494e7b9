-- lane: first
-- Lists of upstreams that change, and resources that clients have subscribed to: the upstream is asked once for all,
-- and each client whose view differs is notified once, whatever the revisions and transports are.
-- pairs: lists that change; clients 2025-11-25..; upstreams 2025-11-25.. http
-- pairs: lists that change; clients 2025-11-25..; upstreams 2024-11-05 sse
-- pairs: lists that change; clients 2025-11-25..; upstreams 2025-06-18 stdio
-- pairs: lists that change; clients 2025-11-25..; upstreams 2026-07-28 stdio
-- pairs: resources that change; clients 2025-06-18..; upstreams 2025-11-25.. http
-- pairs: resources that change; clients 2025-06-18..; upstreams 2024-11-05 sse
-- pairs: resources that change; clients 2025-06-18..; upstreams 2025-06-18 stdio
-- pairs: resources that change; clients 2025-06-18..; upstreams 2026-07-28 stdio
local cjson = require "cjson.safe"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local function names_of(c)
  local names = {}
  for i, tool in ipairs(c:result("tools/list", {}).tools) do names[i] = tool.name end
  table.sort(names)
  return names
end

local function count(messages, method)
  local n = 0
  for _, message in ipairs(messages) do
    if message.method == method then n = n + 1 end
  end
  return n
end

-- A gateway before the stub, whose lists were read, and whose upstream can say that they have changed.
local function start(u, more)
  local entry = { prefix = "", refresh = "1h" }
  for name, value in pairs(more or {}) do entry[name] = value end
  local g = upstream.gateway({ one = u }, { entries = { one = entry }, workers = 2 })
  return g
end

-- Waits until the upstream can say that something has changed.
local function wait_way(u)
  wait.for_fact("a way for changes", 20, function()
    if u.is_modern then return #u:listening() > 0 end
    if u.kind ~= "http" then return u:count_sessions() > 0 end
    u:all {}
    for _, session in pairs(u.sessions) do
      if session.stream then return true end
    end
  end)
end

-- Returns once the first lists were read and their clients notified, so that later sessions are notified of changes
-- alone.
local function tell_first(g)
  local first <close> = g:client "2025-11-25"
  wait.for_fact("the first list", 20, function() return #names_of(first) > 0 end)
  g:wait_status(function(status) return status.gauges.tasks == 0 end)
end

-- Open streams of clients that hear of changes: of a session that was opened before, and of a request that listens.
local function listeners(g)
  local old, new = g:client "2025-11-25", g:client "2026-07-28"
  for _, c in ipairs { old, new } do assert.is_true(#names_of(c) > 0) end
  -- the task that read the first lists has notified the clients, and has ended
  g:wait_status(function(status) return status.gauges.tasks == 0 end)
  local streams = { old:get_stream(), new:open("subscriptions/listen", { notifications = { toolsListChanged = true } }) }
  streams[2]:wait "notifications/subscriptions/acknowledged"
  return streams, { old, new }
end

local function close_all(list)
  for _, one in ipairs(list) do one:close() end
end

for _, row in ipairs(upstream.kinds()) do
  describe(("a list that changes at an upstream of %s over %s"):format(row[1], row[2]), function()
    it("is read once for five notifications, and told once to each client whose view differs", function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      u:offer("tools", { "first" })
      local g <close> = start(u)
      local streams, clients = listeners(g)
      assert.same({ "first" }, names_of(clients[1]))
      wait_way(u)
      local before = #u:all { method = "tools/list" }
      u:offer("tools", { "first", "second" })
      for _ = 1, 5 do u:announce "notifications/tools/list_changed" end
      for _, stream in ipairs(streams) do stream:wait_event("notifications/tools/list_changed", 20) end
      assert.same({ "first", "second" }, names_of(clients[1]))
      assert.same({ "first", "second" }, names_of(clients[2]))
      assert.equal(before + 1, #u:all { method = "tools/list" })
      -- The first announcement finds the lists unchanged: they are read, and no client is notified. The second one
      -- finds a change.
      u:announce "notifications/tools/list_changed"
      wait.for_fact("the second reading", 20, function() return #u:all { method = "tools/list" } == before + 2 end)
      u:offer("tools", { "third" })
      u:announce "notifications/tools/list_changed"
      for _, stream in ipairs(streams) do
        wait.for_fact("the second notification", 20, function() return count(stream:messages(), "notifications/tools/list_changed") >= 2 end)
      end
      assert.same({ "third" }, names_of(clients[2]))
      for _, stream in ipairs(streams) do assert.equal(2, count(stream:messages(), "notifications/tools/list_changed")) end
      close_all(streams)
      close_all(clients)
    end)
  end)

  describe(("a resource of an upstream of %s over %s"):format(row[1], row[2]), function()
    it("is asked for once for all its subscribers, told to them alone, and no more after the last", function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      local g <close> = start(u)
      local one <close> = g:client "2025-11-25"
      local two <close> = g:client "2025-06-18"
      local three <close> = g:client "2026-07-28"
      wait.for_fact("the lists", 20, function() return #names_of(one) > 0 end)
      wait_way(u)
      local streams = { one:get_stream(), two:get_stream() }
      for _, c in ipairs { one, two } do c:result("resources/subscribe", { uri = "stub://text" }) end
      local listening = three:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "stub://bytes", "stub://none" } } })
      local ack = listening:wait_event "notifications/subscriptions/acknowledged"
      assert.same({ "stub://bytes" }, ack.json.params.notifications.resourceSubscriptions)
      if u.is_modern then -- the request that asks for less is taken back when the next one is answered: until then an event comes by both
        wait.for_fact("one request that listens", 20, function() return #u:listening() == 1 end)
      end

      u:announce("notifications/resources/updated", { uri = "stub://text" })
      for _, stream in ipairs(streams) do assert.equal("stub://text", stream:wait_event("notifications/resources/updated", 20).json.params.uri) end
      u:announce("notifications/resources/updated", { uri = "stub://bytes" })
      assert.equal("stub://bytes", listening:wait_event("notifications/resources/updated", 20).json.params.uri)
      for _, stream in ipairs(streams) do assert.equal(1, count(stream:messages(), "notifications/resources/updated")) end
      assert.equal(1, count(listening:messages(), "notifications/resources/updated"))

      local function asked()
        if not u.is_modern then return #u:all { method = "resources/subscribe" }, #u:all { method = "resources/unsubscribe" } end
        local listens = u:listening()
        return #(listens[#listens].filter.resourceSubscriptions or {}), #listens
      end
      -- a client has a session of its own at an older upstream over HTTP, and subscribes there
      assert.same({ row[1] == "2025-11-25" and 3 or 2, u.is_modern and 1 or 0 }, { asked() })
      one:result("resources/unsubscribe", { uri = "stub://text" })
      u:announce("notifications/resources/updated", { uri = "stub://text" })
      wait.for_fact("one for the other subscriber", 20, function() return count(streams[2]:messages(), "notifications/resources/updated") == 2 end)
      assert.equal(1, count(streams[1]:messages(), "notifications/resources/updated"))
      two:result("resources/unsubscribe", { uri = "stub://text" })
      if u.is_modern then
        wait.for_fact("a narrower request", 20, function()
          local listens = u:listening()
          return #listens == 1 and #(listens[1].filter.resourceSubscriptions or {}) == 1
        end)
      else
        wait.for_fact("the unsubscription", 20, function() return u:all({ method = "resources/unsubscribe" })[1] end)
        assert.equal("stub://text", u:all({ method = "resources/unsubscribe" })[1].json.params.uri)
      end
      listening:hang_up() -- the gateway finds out that the stream has ended when it next looks at its subscribers
      if u.kind == "sse" then
        wait.for_fact("the other unsubscription", 40, function() return #u:all { method = "resources/unsubscribe" } == 2 end)
      end
      close_all(streams)
    end)
  end)
end

describe("a list that only clients of a class see", function()
  -- An upstream that lists `shown.roots` to clients with roots, and `shown.none` to others.
  local function choosy(more)
    local u = upstream.start { revision = "2025-11-25", get = more and more.get }
    local shown = { roots = "before", none = "same" }
    u:when("tools/list", function(x)
      local name = (x.session.capabilities or {}).roots and shown.roots or shown.none
      x:result(('{"tools":[{"name":"%s","inputSchema":{"type":"object"}}]}'):format(name))
    end)
    return u, shown
  end

  -- How many sessions with roots have their stream: those of clients, and those in which the list is read.
  local function count_ways(u)
    local n = 0
    u:all {}
    for _, session in pairs(u.sessions) do
      if session.stream and (session.capabilities or {}).roots then n = n + 1 end
    end
    return n
  end

  -- A client with roots, which hears of changes.
  local function listener(g)
    local c = g:client("2025-11-25", { capabilities = { roots = {} } })
    return c, c:get_stream()
  end

  it("is read again after the upstream has said once that it changed, though no client lists", function()
    local u, shown = choosy()
    local _ <close> = u
    local g <close> = start(u)
    tell_first(g)
    local c, stream = listener(g)
    wait.for_fact("the list of the class", 20, function() return names_of(c)[1] == "before" end)
    wait_way(u)
    wait.for_fact("the end of the session that read it", 20, function() return count_ways(u) == 0 end)
    shown.roots = "after"
    for _ = 1, 5 do u:announce "notifications/tools/list_changed" end
    stream:wait_event("notifications/tools/list_changed", 40)
    assert.same({ "after" }, names_of(c))
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    assert.equal(1, count(stream:messages(), "notifications/tools/list_changed"))
    assert.is_nil(g:log():find("task failed", 1, true))
    stream:close()
    c:close()
  end)

  it("is read again once the client has left that listed first", function()
    local u, shown = choosy()
    local _ <close> = u
    local g <close> = start(u)
    tell_first(g)
    local first = g:client("2025-11-25", { capabilities = { roots = {} } })
    wait.for_fact("the list of the class", 20, function() return names_of(first)[1] == "before" end)
    local c, stream = listener(g)
    assert.same({ "before" }, names_of(c))
    first:delete()
    wait.for_fact("the end of the first session", 20, function() return count_ways(u) == 0 end)
    shown.roots = "after"
    wait_way(u)
    u:announce "notifications/tools/list_changed"
    stream:wait_event("notifications/tools/list_changed", 40)
    assert.same({ "after" }, names_of(c))
    stream:close()
    c:close()
  end)

  it("is read at each `refresh` where the upstream has no stream, and a change is told", function()
    local u, shown = choosy { get = false }
    local _ <close> = u
    local g <close> = start(u, { refresh = "1s" })
    tell_first(g)
    local c, stream = listener(g)
    wait.for_fact("the list of the class", 20, function() return names_of(c)[1] == "before" end)
    shown.roots = "after"
    stream:wait_event("notifications/tools/list_changed", 40)
    assert.same({ "after" }, names_of(c))
    stream:close()
    c:close()
  end)

  it("is read again if it changed while it was read", function()
    local u, shown = choosy()
    local _ <close> = u
    local g <close> = start(u, { list_wait = "300ms" })
    local none <close> = g:client "2025-11-25"
    wait.for_fact("the base list", 20, function() return names_of(none)[1] == "same" end)
    wait_way(u)
    local held
    u:behave()
    u:when("tools/list", function(x)
      if not held and (x.session.capabilities or {}).roots then
        held = x
      else
        x:result(('{"tools":[{"name":"%s","inputSchema":{"type":"object"}}]}'):format((x.session.capabilities or {}).roots and shown.roots or shown.none))
      end
    end)
    local c <close> = g:client("2025-11-25", { capabilities = { roots = {} } })
    assert.same({ "same" }, names_of(c)) -- the list of the class is awaited for `list_wait`
    wait.for_fact("the reading", 20, function()
      u:all {}
      return held
    end)
    shown.roots = "after"
    local before = #u:all { method = "tools/list" }
    u:announce "notifications/tools/list_changed"
    wait.for_fact("the base list, read again", 20, function() return #u:all { method = "tools/list" } > before end)
    held:result '{"tools":[{"name":"before","inputSchema":{"type":"object"}}]}'
    wait.for_fact("the changed list of the class", 40, function() return names_of(c)[1] == "after" end)
  end)
end)

-- The definitions of `many` resources as texts, and their URIs.
local function many_resources(many)
  local uris, texts = {}, {}
  for i = 1, many do
    uris[i] = ("file:///%02d"):format(i)
    texts[i] = ('{"uri":"%s","name":"%d"}'):format(uris[i], i)
  end
  return texts, uris
end

describe("a request that listens to many resources", function()
  for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
    it("is asked of an upstream of " .. revision .. " in as few requests as its revision has", function()
      local u <close> = upstream.start { revision = revision }
      local offered, asked = many_resources(60)
      u:offer("resources", offered)
      local g <close> = start(u)
      tell_first(g)
      wait_way(u)
      local function requests() return #u:all { method = u.is_modern and "subscriptions/listen" or "resources/subscribe" } end
      local c <close>, before = g:client "2026-07-28", requests()
      local listening <close> = c:open("subscriptions/listen", { notifications = { resourceSubscriptions = asked } })
      local got = listening:wait_event("notifications/subscriptions/acknowledged", 20).json.params.notifications.resourceSubscriptions
      assert.same(asked, got)
      assert.equal(u.is_modern and 1 or 60, requests() - before)
      for _, uri in ipairs { asked[1], asked[60] } do
        u:announce("notifications/resources/updated", { uri = uri })
        assert.equal(uri, listening:wait_event("notifications/resources/updated", 20).json.params.uri)
      end
    end)
  end

  it("leaves nothing behind at an upstream if its client leaves meanwhile", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local offered, asked = many_resources(30)
    u:offer("resources", offered)
    local asked_so_far, held = 0, nil
    u:when("resources/subscribe", function(x)
      asked_so_far = asked_so_far + 1
      if asked_so_far == 20 then held = x else x:result "{}" end
    end)
    local g <close> = start(u)
    tell_first(g)
    wait_way(u)
    local c <close> = g:client "2026-07-28"
    local listening = c:open("subscriptions/listen", { notifications = { resourceSubscriptions = asked } })
    wait.for_fact("the request that is not answered", 20, function()
      u:all {}
      return held
    end)
    listening:close()
    g:wait_status(function(now) return now.gauges.tasks == 0 end)
    held:result "{}"
    wait.for_fact("all to be unsubscribed", 40, function() return #u:all { method = "resources/unsubscribe" } == 20 end)
    assert.equal(20, #u:all { method = "resources/subscribe" })
  end)

  for _, transport in ipairs { "http", "stdio" } do
    it("leaves no request behind at an upstream of 2026-07-28 over " .. transport .. " if its client leaves before the acknowledgement", function()
      local u <close> = upstream.start { revision = "2026-07-28", transport = transport }
      local offered, asked = many_resources(2)
      u:offer("resources", offered)
      local g <close> = start(u)
      tell_first(g)
      wait_way(u)
      local held
      u:when("subscriptions/listen", function(x) held = x end)
      local c <close> = g:client "2026-07-28"
      local listening = c:open("subscriptions/listen", { notifications = { resourceSubscriptions = asked } })
      wait.for_fact("the request that is not acknowledged", 20, function()
        u:all {}
        return held
      end)
      listening:close()
      wait.for_fact("the end of the request", 20, function()
        u:all {}
        return held.left or held.cancelled
      end)
      assert.equal(1, #u:listening())
    end)
  end
end)

describe("an upstream without a stream", function()
  it("has its lists read at each `refresh`, changes are told, and resources are left out of the acknowledgement", function()
    local u <close> = upstream.start { revision = "2025-11-25", get = false }
    u:offer("tools", { "first" })
    local g <close> = start(u, { refresh = "1s" })
    local streams, clients = listeners(g)
    local more <close> = g:client "2026-07-28"
    assert.same({ "first" }, names_of(clients[1]))
    local listening = more:open("subscriptions/listen", { notifications = { toolsListChanged = true, resourceSubscriptions = { "stub://text" } } })
    assert.same({ toolsListChanged = true }, listening:wait_event("notifications/subscriptions/acknowledged").json.params.notifications)
    assert.equal(-32602, clients[1]:call("resources/subscribe", { uri = "stub://text" }).error.code)
    u:offer("tools", { "second" })
    for _, stream in ipairs(streams) do stream:wait_event("notifications/tools/list_changed", 30) end
    assert.same({ "second" }, names_of(clients[2]))
    close_all(streams)
    close_all(clients)
    listening:close()
  end)
end)

describe("a channel that was lost", function()
  it("is opened again with its subscriptions, and lists are told only if they differ", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "look" })
    local g <close> = start(u, { refresh = "2s" })
    tell_first(g)
    local c <close> = g:client "2025-11-25"
    assert.same({ "look" }, names_of(c))
    wait_way(u)
    local filter = { toolsListChanged = true, resourceSubscriptions = { "stub://text" } }
    local stream = g:client "2026-07-28":open("subscriptions/listen", { notifications = filter })
    stream:wait_event "notifications/subscriptions/acknowledged"
    assert.equal(1, #u:all { method = "resources/subscribe" })
    u:lose_sessions "404"
    wait.for_fact("the subscription of the new channel", 40, function() return #u:all { method = "resources/subscribe" } == 2 end)
    wait_way(u)
    wait.for_fact("an update", 20, function()
      u:announce("notifications/resources/updated", { uri = "stub://text" })
      return count(stream:messages(), "notifications/resources/updated") > 0
    end)
    assert.equal(0, count(stream:messages(), "notifications/tools/list_changed"))
    stream:close()
  end)

  it("of an upstream of 2026-07-28 whose stream has ended listens again, and changes are told once", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:offer("tools", { "first" })
    local g <close> = start(u)
    local streams, clients = listeners(g)
    assert.same({ "first" }, names_of(clients[1]))
    wait_way(u)
    u:offer("tools", { "second" })
    u:listening()[1]:drop()
    for _, stream in ipairs(streams) do stream:wait_event("notifications/tools/list_changed", 30) end
    assert.same({ "second" }, names_of(clients[2]))
    wait_way(u)
    for _, stream in ipairs(streams) do assert.equal(1, count(stream:messages(), "notifications/tools/list_changed")) end
    close_all(streams)
    close_all(clients)
  end)
end)

-- Reloads the configuration after change(text).
local function reload(g, change)
  local path = g.dir .. "/moonpool.yaml"
  local file <close> = assert(io.open(path))
  local text = file:read "a"
  local out <close> = assert(io.open(path, "w"))
  out:write((change(text)))
  out:close()
  assert.equal(200, g:admin("/reload", "POST").status)
end

local function change_description(g)
  reload(g, function(text) return text:gsub('"prefix":', '"describe":{"first":"Another text."},"prefix":') end)
end

describe("an upstream that is gone", function()
  it("is asked by the scripts of a reload alone, and those from before it end", function()
    local u <close> = upstream.start { revision = "2024-11-05", transport = "sse" }
    u:offer("tools", { "first" })
    local g <close> = start(u, { circuit = { failures = 1000 } })
    local c <close> = g:client "2025-11-25"
    wait.for_fact("the first list", 20, function() return #names_of(c) > 0 end)
    wait_way(u)
    c:result("resources/subscribe", { uri = "stub://text" })
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    local tries = 0
    u:answer_all(function(_, reply)
      tries = tries + 1
      reply:close()
      return true
    end)
    u:end_streams()
    wait.for_fact("more attempts", 60, function() return tries >= 4 end)
    change_description(g)
    g:wait_status(function(status) return status.gauges.vms_draining == 0 end, 30)
    u:behave()
    wait_way(u)
  end)

  it("from the configuration just as its lists are to be read again is asked no more, and the scripts from before end", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    u:offer("tools", { "first" })
    local g <close> = start(u)
    local c <close> = g:client "2025-11-25"
    wait.for_fact("the first list", 20, function() return #names_of(c) > 0 end)
    wait_way(u)
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    u:announce "notifications/tools/list_changed"
    -- the task that read the lists waits for further notifications
    g:wait_status(function(status) return status.gauges.jobs == 1 end)
    reload(g, function(text)
      local config = cjson.decode(text)
      config.upstreams = nil
      return cjson.encode(config)
    end)
    g:wait_status(function(status) return status.gauges.vms_draining == 0 and status.gauges.jobs == 0 end, 30)
  end)

  it("when its lists are to be read, has them read soon after it is back", function()
    local u <close> = upstream.start { revision = "2026-07-28" }
    u:offer("tools", { "first" })
    local g <close> = start(u, { circuit = { failures = 1000 } })
    local c <close> = g:client "2025-11-25"
    wait.for_fact("the first list", 20, function() return #names_of(c) > 0 end)
    wait_way(u)
    g:wait_status(function(status) return status.gauges.tasks == 0 end)
    u:when("*", upstream.faults.status(503))
    u:offer("tools", { "second" })
    u:listening()[1]:drop()
    -- requests for lists: one of the first reading, two of a reading that fails, and one of the next
    u:wait({ method = "tools/list" }, 4, 40)
    u:behave()
    -- the time limit is shorter than the time until the next `refresh`
    wait.for_fact("the new list", 60, function() return names_of(c)[1] == "second" end)
    wait_way(u)
  end)
end)

describe("a program whose resources are followed", function()
  it("does not end for being idle; without subscribers it does", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local g <close> = start(u, { process = { idle_stop = "1s" } })
    local c <close> = g:client "2025-11-25"
    assert.is_true(#names_of(c) > 0)
    local stream = c:get_stream()
    c:result("resources/subscribe", { uri = "stub://text" })
    -- a client that can be asked: it has a program of its own, which becomes idle
    local other <close> = g:client("2025-11-25", { capabilities = { roots = {} } })
    other:result("tools/call", { name = "look", arguments = {} })
    g:wait_status(function(status) return status.gauges.upstream_channels == 2 end)
    g:wait_status(function(status) return status.gauges.upstream_channels == 1 end, 40)
    u:announce("notifications/resources/updated", { uri = "stub://text" })
    stream:wait_event("notifications/resources/updated", 20)
    c:result("resources/unsubscribe", { uri = "stub://text" })
    g:wait_status(function(status) return status.gauges.upstream_channels == 0 end, 40)
    stream:close()
  end)
end)
