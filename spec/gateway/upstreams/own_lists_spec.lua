-- What is done in a session of an upstream can change the lists of this session alone: a login adds tools there. Its
-- client sees them and is notified, and no other client is, of another principal or of the same one.
local credentials = require "spec.helpers.credentials"
local upstream = require "spec.helpers.upstream"
local wait = require "spec.helpers.wait"

local KINDS <const> = { { "2025-11-25", "http" }, { "2024-11-05", "sse" }, { "2025-06-18", "stdio" } }
local CHANGED <const> = "notifications/tools/list_changed"
local CAN <const> = { roots = { listChanged = true } }

local function tool(name) return ('{"name":"%s","inputSchema":{"type":"object"}}'):format(name) end

-- An upstream whose tool `login` adds the tool `secret` in the session in which it is called, and says so there.
local function with_login(kind)
  local u = upstream.start { revision = kind[1], transport = kind[2] }
  u:when("tools/list", function(x)
    local list = { tool "login", tool "logout", tool "echo" }
    if x.session.is_in then list[#list + 1] = tool "secret" end
    x:result('{"tools":[' .. table.concat(list, ",") .. "]}")
  end)
  local function set(is_in)
    return function(x, reply)
      x.session.is_in = is_in
      x:emit(('{"jsonrpc":"2.0","method":"%s"}'):format(CHANGED))
      reply '{"content":[{"type":"text","text":"done"}]}'
    end
  end
  u.handlers.login, u.handlers.logout = set(true), set(false)
  u.handlers.secret = function(x, reply)
    reply(('{"content":[{"type":"text","text":"%s"}]}'):format(x.session.is_in and "secret" or "not logged in"))
  end
  return u
end

-- `scripts`: nil for those by which clients have a principal.
local function start(u, scripts)
  return upstream.gateway({ one = u }, {
    entries = { one = { prefix = "", refresh = "1s", retry = "never", list_wait = "20s" } }, workers = 2,
    scripts = scripts or { ["auth/main.lua"] = credentials.script },
  })
end

local function has_secret(c)
  for _, one in ipairs(c:result("tools/list", {}).tools) do
    if one.name == "secret" then return true end
  end
  return false
end

local function call(c, name) return c:call("tools/call", { name = name, arguments = {} }) end

local function count(stream)
  local n = 0
  for _, message in ipairs(stream:messages()) do n = n + (message.method == CHANGED and 1 or 0) end
  return n
end

-- Waits until the upstream's lists were read again `times` times by the channel that belongs to no client.
local function read_again(u, times)
  local before = #u:all { method = "tools/list" }
  wait.for_fact("more readings of the lists", 20, function() return #u:all { method = "tools/list" } >= before + times end)
end

for _, kind in ipairs(KINDS) do
  describe(("a tool that a client has added in its own session of an upstream over %s"):format(kind[2]), function()
    it("is listed for it alone, and it alone is notified", function()
      local u <close> = with_login(kind)
      local g <close> = start(u)
      local function client(token) return g:client("2025-11-25", { token = token, capabilities = CAN }) end
      local ann <close> = client "ann-1"
      local other <close> = client "ann-1"
      local bob <close> = client "bob-1"
      local all = { ann, other, bob }
      local streams = {}
      for i, c in ipairs(all) do
        assert.is_false(has_secret(c))
        assert.equal("done", upstream.text(call(c, "logout")))
        streams[i] = c:get_stream()
      end
      g:wait_status(function(status) return status.gauges.tasks == 0 end)
      local before = {}
      for i, stream in ipairs(streams) do before[i] = count(stream) end

      assert.equal("done", upstream.text(call(ann, "login")))
      wait.for_fact("the notification", 20, function() return count(streams[1]) > before[1] end)
      assert.is_true(has_secret(ann))
      assert.equal("secret", upstream.text(call(ann, "secret")))
      read_again(u, 3)
      for i = 2, 3 do
        assert.is_false(has_secret(all[i]))
        assert.equal(-32602, call(all[i], "secret").error.code)
        assert.equal(before[i], count(streams[i]))
      end
      assert.equal(before[1] + 1, count(streams[1]))

      -- a client that comes first after that, and one that logs in later
      local late <close> = client "bob-1"
      assert.is_false(has_secret(late))
      assert.equal("done", upstream.text(call(bob, "login")))
      wait.for_fact("the notification", 20, function() return count(streams[3]) > before[3] end)
      assert.is_true(has_secret(bob))
      assert.is_false(has_secret(other))
      assert.equal(before[2], count(streams[2]))

      assert.equal("done", upstream.text(call(ann, "logout")))
      wait.for_fact("the second notification", 20, function() return count(streams[1]) > before[1] + 1 end)
      assert.is_false(has_secret(ann))
      assert.is_true(has_secret(bob))
      for _, stream in ipairs(streams) do stream:close() end
    end)
  end)
end

describe("a tool that a client of 2026-07-28 without a principal has added", function()
  it("is listed for the clients that share its session, which are those that can be asked the same, and for no other", function()
    for _, kind in ipairs { KINDS[2], KINDS[3] } do
      local u <close> = with_login(kind)
      local g <close> = start(u, {})
      local one <close> = g:client("2026-07-28", { capabilities = CAN })
      local same <close> = g:client("2026-07-28", { capabilities = CAN })
      local other <close> = g:client "2026-07-28"
      local all, streams = { one, same, other }, {}
      for i, c in ipairs(all) do
        assert.is_false(has_secret(c))
        streams[i] = c:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
        streams[i]:wait_event "notifications/subscriptions/acknowledged"
      end
      assert.equal("done", upstream.text(call(one, "login")))
      for i = 1, 2 do
        wait.for_fact("the notification", 20, function() return count(streams[i]) == 1 end)
        assert.is_true(has_secret(all[i]))
        assert.equal("secret", upstream.text(call(all[i], "secret")))
      end
      read_again(u, 3)
      assert.is_false(has_secret(other))
      assert.equal(-32602, call(other, "secret").error.code)
      assert.equal(0, count(streams[3]))
      for _, stream in ipairs(streams) do stream:close() end
    end
  end)
end)

-- server-everything does so: what it adds depends on what its client can be asked.
for _, kind in ipairs(KINDS) do
  describe(("an upstream over %s that notifies of a change in each session that begins"):format(kind[2]), function()
    it("has its lists read a few times, not again and again", function()
      local u <close> = upstream.start { revision = kind[1], transport = kind[2] }
      u:when("tools/list", function(x)
        if not x.session.has_notified then
          x.session.has_notified = true
          x:emit(('{"jsonrpc":"2.0","method":"%s"}'):format(CHANGED))
        end
        x:result('{"tools":[' .. tool "echo" .. "]}")
      end)
      local g <close> = start(u)
      local c <close> = g:client("2025-11-25", { token = "ann-1", capabilities = CAN })
      c:result("tools/list", {})
      assert.is_not_nil(call(c, "echo").result)
      g:wait_status(function(status) return status.gauges.tasks == 0 and status.gauges.upstream_exchanges == 0 end)
      local before = #u:all { method = "initialize" }
      c:result("tools/list", {})
      g:wait_status(function(status) return status.gauges.tasks == 0 end)
      assert.is_true(#u:all { method = "initialize" } - before <= 3, before .. " sessions, and then " .. #u:all { method = "initialize" })
    end)
  end)
end
