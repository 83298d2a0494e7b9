-- A subscription to a resource goes over the upstream's session that belongs to the client, where there is one: what
-- the upstream notifies of in it reaches this client, and no other.
local credentials = require "spec.helpers.credentials"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local KINDS <const> = { { "2025-11-25", "http" }, { "2024-11-05", "sse" }, { "2025-06-18", "stdio" } }
local UPDATED <const> = "notifications/resources/updated"
local CAN <const> = { roots = { listChanged = true } }
local URI <const> = "stub://text"

-- An upstream whose tool `touch` changes the resource in the session in which it is called: this session alone is
-- notified, if it has subscribed.
local function touchy(kind)
  local u = upstream.start { revision = kind[1], transport = kind[2], get = kind.get }
  u:offer("tools", { "touch" })
  u.handlers.touch = function(x, reply)
    local is_subscribed = (x.session.subscribed or {})[URI] == true
    if is_subscribed then x:emit(('{"jsonrpc":"2.0","method":"%s","params":{"uri":"%s"}}'):format(UPDATED, URI)) end
    reply(('{"content":[{"type":"text","text":"%s"}]}'):format(is_subscribed and "told" or "not told"))
  end
  return u
end

local function touch(c) return upstream.text(c:call("tools/call", { name = "touch", arguments = {} })) end

local function count(stream)
  local n = 0
  for _, message in ipairs(stream:messages()) do n = n + (message.method == UPDATED and 1 or 0) end
  return n
end

-- `more`: other options of the gateway.
local function start(u, more)
  local options = { entries = { one = { prefix = "", refresh = "1h", list_wait = "20s" } }, workers = 2, scripts = { ["auth/main.lua"] = credentials.script } }
  for name, value in pairs(more or {}) do options[name] = value end
  return upstream.gateway({ one = u }, options)
end

for _, kind in ipairs(KINDS) do
  describe(("a subscription of a client with an own session of an upstream over %s"):format(kind[2]), function()
    it("is made there, and its updates reach this client alone", function()
      local u <close> = touchy(kind)
      local g <close> = start(u)
      local ann <close> = g:client("2025-11-25", { token = "ann-1", capabilities = CAN })
      local bob <close> = g:client("2025-11-25", { token = "bob-1", capabilities = CAN })
      local streams = { ann:get_stream(), bob:get_stream() }
      for _, c in ipairs { ann, bob } do c:result("tools/list", {}) end
      assert.equal("not told", touch(ann))
      for _, c in ipairs { ann, bob } do c:result("resources/subscribe", { uri = URI }) end
      assert.equal("told", touch(ann))
      wait.for_fact("the notification", 20, function() return count(streams[1]) == 1 end)
      assert.equal("told", touch(bob))
      wait.for_fact("the notification for the other", 20, function() return count(streams[2]) == 1 end)
      assert.equal(1, count(streams[1]))

      ann:result("resources/unsubscribe", { uri = URI })
      u:wait { method = "resources/unsubscribe" }
      assert.equal("not told", touch(ann))
      assert.equal("told", touch(bob))
      wait.for_fact("the second notification for the other", 20, function() return count(streams[2]) == 2 end)
      assert.equal(1, count(streams[1]))
      for _, stream in ipairs(streams) do stream:close() end
    end)
  end)
end

describe("a subscription in a client's own session of an upstream", function()
  it("is made again when the upstream has lost the session", function()
    local u <close> = touchy(KINDS[1])
    local g <close> = start(u)
    local ann <close> = g:client("2025-11-25", { token = "ann-1", capabilities = CAN })
    local stream = ann:get_stream()
    ann:result("tools/list", {})
    ann:result("resources/subscribe", { uri = URI })
    assert.equal("told", touch(ann))
    wait.for_fact("the notification", 20, function() return count(stream) == 1 end)
    u:end_streams()                               -- the gateway opens the stream again, and learns that the session is lost
    u:lose_sessions "404"
    wait.for_fact("the notification that something may have changed", 40, function() return count(stream) == 2 end)
    assert.equal("told", touch(ann))
    wait.for_fact("the notification of the new session", 20, function() return count(stream) == 3 end)
    stream:close()
  end)

  it("is refused where no stream brings its updates", function()
    local u <close> = touchy { "2025-11-25", "http", get = false }
    local g <close> = start(u)
    local ann <close> = g:client("2025-11-25", { token = "ann-1", capabilities = CAN })
    ann:result("tools/list", {})
    touch(ann)
    assert.equal(-32602, ann:call("resources/subscribe", { uri = URI }).error.code)
  end)

  it("takes a place of limits.upstreams.subscribed, which is free once its client has left", function()
    for _, kind in ipairs(KINDS) do
      local u <close> = touchy(kind)
      local g <close> = start(u, { entries = { one = { prefix = "", refresh = "1s", list_wait = "20s" } }, constants = { upstream_subscribed = 1 } })
      local ann <close> = g:client("2025-11-25", { token = "ann-1", capabilities = CAN })
      local bob <close> = g:client("2025-11-25", { token = "bob-1", capabilities = CAN })
      for _, c in ipairs { ann, bob } do touch(c) end
      ann:result("resources/subscribe", { uri = URI })
      local err = bob:call("resources/subscribe", { uri = URI }).error
      assert.truthy(err.message:find("1 resources of this upstream are subscribed to", 1, true), err.message)
      ann:delete()
      wait.for_fact("a free place", 30, function() return bob:call("resources/subscribe", { uri = URI }).result end)
      assert.equal("told", touch(bob))
    end
  end)

  it("counts for the client that subscribed, where clients without a principal share the session", function()
    local u <close> = touchy(KINDS[3])
    u:offer("resources", { '{"uri":"file:///a","name":"a"}', '{"uri":"file:///b","name":"b"}', '{"uri":"file:///c","name":"c"}' })
    local g <close> = start(u, { scripts = {}, constants = { upstream_subscribed_per_principal = 1 } })
    local c <close> = g:client("2026-07-28", { capabilities = CAN })
    touch(c)
    local kept = {}                -- keeps these streams open until the end, so that their subscriptions stay
    local asked = { { "127.0.0.1", "file:///a", 1 }, { "127.0.0.1", "file:///b", 0 }, { "127.0.0.2", "file:///b", 1 }, { "127.0.0.2", "file:///c", 0 } }
    for i, row in ipairs(asked) do
      kept[i] = c:open("subscriptions/listen", { notifications = { resourceSubscriptions = { row[2] } } }, { from = row[1] })
      local told = kept[i]:wait_event("notifications/subscriptions/acknowledged", 20).json.params.notifications
      assert.equal(row[3], #(told.resourceSubscriptions or {}), row[1] .. " " .. row[2])
    end
    assert.equal(2, #u:all { method = "resources/subscribe" })
    for _, stream in ipairs(kept) do stream:close() end
  end)

  for _, transport in ipairs { "http", "stdio" } do
    it("is made also by the first request of a client that can be asked, where the upstream opens no sessions, over " .. transport, function()
      local u <close> = upstream.start { revision = "2026-07-28", transport = transport }
      local g <close> = start(u)
      local ann <close> = g:client("2025-11-25", { token = "ann-1", capabilities = CAN })
      local stream = ann:get_stream()
      ann:result("resources/list", {})
      assert.same({}, ann:result("resources/subscribe", { uri = URI }))
      u:announce(UPDATED, { uri = URI })
      wait.for_fact("the notification", 20, function() return count(stream) == 1 end)
      stream:close()
    end)
  end
end)
