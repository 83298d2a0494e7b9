-- With store.file a session goes on in the next process, and what it has subscribed to at upstreams is subscribed to
-- again: on the channel that all clients share once the upstream is there, on a session's own one when it is opened.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local UPDATED <const>, URI <const> = "notifications/resources/updated", "stub://text"

local RESOURCES <const> = { '{"uri":"stub://text","name":"a"}', '{"uri":"stub://Other%7e","name":"b"}', '{"uri":"stub://third","name":"c"}' }

-- A gateway that keeps its sessions, with this upstream. `more`: other options.
local function start(u, more)
  local options = {
    entries = { one = { prefix = "", refresh = "1h", list_wait = "20s" } }, workers = 2, config = { store = { file = "data/store.db" } },
    files = { ["data/.keep"] = "" },
  }
  for name, value in pairs(more or {}) do options[name] = value end
  return upstream.gateway({ one = u }, options)
end

-- The process that follows on this one, which is killed once all is stored, with the same clients.
local function restart(g, clients, options)
  g:wait_status(function(status) return status.gauges.kept_sessions_behind == 0 and status.gauges.store_unsaved == 0 end)
  g:kill()
  g.stopped = true
  options = options or {}
  options.dir = g.dir
  local new = gateway.start(options)
  for _, client in ipairs(clients) do client.gateway = new end
  return new
end

local function follow(client, uri)
  wait.for_fact("the lists", 20, function() return #client:result("tools/list", {}).tools > 0 end)
  client:result("resources/subscribe", { uri = uri })
end

-- How often the upstream was asked to notify of changes of this resource.
local function times_asked_for(u, uri)
  local count = 0
  for _, request in ipairs(u:all { method = "resources/subscribe" }) do count = count + (request.json.params.uri == uri and 1 or 0) end
  return count
end

-- The same, over either revision.
local function times_asked_with(u, uri)
  if not u.is_modern then return times_asked_for(u, uri) end
  local count = 0
  for _, request in ipairs(u:all { method = "subscriptions/listen" }) do
    for _, one in ipairs(request.json.params.notifications.resourceSubscriptions or {}) do count = count + (one == uri and 1 or 0) end
  end
  return count
end

-- How often the upstream was asked to notify of changes of the resource.
local function times_asked(u)
  if not u.is_modern then return #u:all { method = "resources/subscribe" } end
  local count = 0
  for _, request in ipairs(u:all { method = "subscriptions/listen" }) do
    local uris = request.json.params.notifications.resourceSubscriptions or {}
    count = count + (#uris > 0 and 1 or 0)
  end
  return count
end

-- Fails unless the client is notified of changes of URI, or of `uri`.
local function expect_notified(u, me, uri)
  local stream = me:get_stream()
  stream:head()
  u:announce(UPDATED, { uri = uri or URI })
  assert.equal(uri or URI, stream:wait_event(UPDATED, 20).json.params.uri)
  stream:close()
end

for _, row in ipairs(upstream.kinds()) do
  describe(("a resource of an upstream of %s over %s, to which a client has subscribed before a restart,"):format(row[1], row[2]), function()
    it("is subscribed to again, and the client is notified", function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      local g = start(u)
      local me = g:client "2025-11-25"
      follow(me, URI)
      local before = times_asked(u)
      assert.is_true(before > 0)
      local _ <close> = restart(g, { me })
      local is_own = row[2] == "http" and not u.is_modern
      if is_own then me:result("resources/read", { uri = URI }) end
      wait.for_fact("another subscription", 30, function() return times_asked(u) > before end)
      expect_notified(u, me)
      me:delete()
      me:close()
    end)
  end)
end

describe("what sessions of one principal follow on its channel to an upstream", function()
  it("is subscribed to again after a restart, though a new session of the principal calls first", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    u:offer("resources", RESOURCES)
    local g = start(u, { scripts = { ["auth/main.lua"] = credentials.script } })
    local first, second = g:client("2025-11-25", { token = "ann-1" }), g:client("2025-11-25", { token = "ann-2" })
    follow(first, URI)
    follow(second, "stub://third")
    local new <close> = restart(g, { first, second })
    local third <close> = new:client("2025-11-25", { token = "ann-1" })
    wait.for_fact("the lists", 20, function() return #third:result("tools/list", {}).tools > 0 end)
    third:result("resources/read", { uri = URI })
    for _, uri in ipairs { URI, "stub://third" } do
      wait.for_fact("another subscription to " .. uri, 30, function() return times_asked_for(u, uri) == 2 end)
    end
    expect_notified(u, second, "stub://third")
    for _, client in ipairs { first, second } do
      client:delete()
      client:close()
    end
  end)
end)

describe("what clients of the shared channel to an upstream follow is subscribed to after a restart", function()
  for _, row in ipairs { { "2025-06-18", "stdio", "resources/subscribe" }, { "2026-07-28", "http", "subscriptions/listen" } } do
    it(("at another reading of the lists, if the upstream refuses it first, over %s"):format(row[2]), function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      local g = start(u, { entries = { one = { prefix = "", refresh = "1500ms", list_wait = "20s" } } })
      local me = g:client "2025-11-25"
      follow(me, URI)
      u:when(row[3], upstream.faults.error(-32000, "busy"), 1)
      local before = #u:all { method = row[3] }
      local _ <close> = restart(g, { me })
      wait.for_fact("a refused attempt and another one", 30, function() return #u:all { method = row[3] } > before + 1 end)
      expect_notified(u, me)
      me:delete()
      me:close()
    end)
  end

  for _, row in ipairs { { "2025-06-18", "stdio", "resources/subscribe" }, { "2026-07-28", "http", "subscriptions/listen" } } do
    it(("at three attempts, if the upstream refuses one of them each time, and is counted once, over %s"):format(row[2]), function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      u:offer("resources", RESOURCES)
      local g = start(u, { entries = { one = { prefix = "", refresh = "1s", list_wait = "20s" } } })
      local me = g:client "2025-11-25"
      follow(me, URI)
      follow(me, "stub://third")
      u.unfollowed["stub://third"] = true
      local before = times_asked_with(u, "stub://third")
      local new <close> = restart(g, { me })
      local readings = #u:all { method = "tools/list" }
      wait.for_fact("the last attempt, and further readings", 60, function() return #u:all { method = "tools/list" } > readings + 12 end)
      assert.equal(before + 3, times_asked_with(u, "stub://third"))
      assert.equal(1, new:status().counters.refused.upstream_subscriptions)
      expect_notified(u, me)
      me:delete()
      me:close()
    end)
  end

  it("if the list of resources was missing at first", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    local g = start(u)
    local me = g:client "2025-11-25"
    follow(me, URI)
    u:when("resources/list", upstream.faults.error(-32000, "busy"), 1)
    local _ <close> = restart(g, { me })
    wait.for_fact("another subscription", 30, function() return times_asked_for(u, URI) == 2 end)
    me:delete()
    me:close()
  end)

  it("as far as there is room, and what there is no room for is counted", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    u:offer("resources", RESOURCES)
    local g = start(u)
    local me = g:client "2025-11-25"
    follow(me, URI)
    follow(me, "stub://third")
    local new <close> = restart(g, { me }, { constants = { upstream_subscribed = 1 } })
    new:wait_status(function(status) return (status.counters.refused.upstream_subscriptions or 0) == 1 end)
    wait.for_fact("another subscription", 30, function() return times_asked_for(u, URI) + times_asked_for(u, "stub://third") == 3 end)
    me:delete()
    me:close()
  end)
end)

describe("a resource that was subscribed to before a restart", function()
  it("is subscribed to again by the URI that the upstream lists", function()
    local u <close> = upstream.start { revision = "2025-06-18", transport = "stdio" }
    u:offer("resources", RESOURCES)
    local g = start(u)
    local me = g:client "2025-11-25"
    follow(me, "stub://Other%7e")
    local _ <close> = restart(g, { me })
    wait.for_fact("another subscription", 15, function() return #u:all { method = "resources/subscribe" } == 2 end)
    assert.equal(2, times_asked_for(u, "stub://Other%7e"))
    me:delete()
    me:close()
  end)
end)

for _, row in ipairs { { "with a principal", "2026-07-28", "http", { token = "ann-1" } }, { "without one", "2025-06-18", "stdio" } } do
  it("a subscription of an earlier process counts for the client that made it, " .. row[1], function()
    local u <close> = upstream.start { revision = row[2], transport = row[3] }
    u:offer("resources", RESOURCES)
    local constants = { upstream_subscribed_per_principal = 1 }
    local g = start(u, { constants = constants, scripts = row[4] and { ["auth/main.lua"] = credentials.script } })
    local me = g:client("2025-11-25", row[4])
    follow(me, URI)
    local before = times_asked(u)
    local new <close> = restart(g, { me }, { constants = constants })
    wait.for_fact("another subscription", 30, function() return times_asked(u) > before end)
    local other <close> = new:client("2025-11-25", row[4])
    wait.for_fact("the lists", 20, function() return #other:result("tools/list", {}).tools > 0 end)
    local err = other:call("resources/subscribe", { uri = "stub://third" }).error
    assert.truthy(err and err.message:find("your share: unsubscribe", 1, true), err and err.message)
    me:delete()
    me:close()
  end)
end

describe("what clients follow on channels of their own is subscribed to after a restart", function()
  local ROWS <const> = { { "a session", "2025-11-25", "http" }, { "a principal", "2025-06-18", "stdio", { token = "ann-1" } } }
  for _, row in ipairs(ROWS) do
    -- A client of this gateway that follows URI on such a channel, and the upstream.
    local function follower(entry)
      local u = upstream.start { revision = row[2], transport = row[3] }
      local g = start(u, { entries = { one = entry }, scripts = row[4] and { ["auth/main.lua"] = credentials.script } })
      local me = g:client("2025-11-25", row[4])
      follow(me, URI)
      assert.equal(1, times_asked_for(u, URI))
      return u, g, me
    end

    it("if the list of resources was missing when it called first, of " .. row[1], function()
      local peer, g, me = follower { prefix = "", refresh = "1h", list_wait = "2s" }
      local u <close> = peer
      u:when("resources/list", upstream.faults.error(-32000, "busy"))
      local _ <close> = restart(g, { me })
      wait.for_fact("the lists", 20, function() return #me:result("tools/list", {}).tools > 0 end)
      me:result("tools/call", { name = "echo", arguments = { text = "a" } })
      assert.equal(1, times_asked_for(u, URI))
      u:behave()
      wait.for_fact("another subscription", 30, function() return times_asked_for(u, URI) == 2 end)
      expect_notified(u, me)
      me:delete()
      me:close()
    end)

    it("again, if the upstream refuses it first, of " .. row[1], function()
      local peer, g, me = follower { prefix = "", refresh = "1h", list_wait = "20s" }
      local u <close> = peer
      u:when("resources/subscribe", upstream.faults.error(-32000, "busy"), 1)
      local _ <close> = restart(g, { me })
      me:result("resources/read", { uri = URI })
      wait.for_fact("a refused attempt and another one", 30, function() return times_asked_for(u, URI) == 3 end)
      expect_notified(u, me)
      me:delete()
      me:close()
    end)
  end
end)
