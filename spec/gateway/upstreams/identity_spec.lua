-- Whose channel a call uses: what an upstream keeps for one client is never seen by another.
-- pairs: a channel for each principal; clients 2025-06-18..; upstreams 2024-11-05 sse
-- pairs: a channel for each principal; clients 2025-06-18..; upstreams 2025-11-25 http
-- pairs: a channel for each principal; clients 2025-06-18..; upstreams 2025-06-18 stdio
local credentials = require "spec.helpers.credentials"
local upstream = require "spec.helpers.upstream"

local function count(c) return upstream.text(c:call("tools/call", { name = "counter", arguments = nil })) end

local auth = { ["auth/main.lua"] = credentials.script }

local function sessions(u)
  local ids = {}
  for _, entry in ipairs(u:all { tool = "counter" }) do ids[entry.session.id or entry.session.number] = true end
  local n = 0
  for _ in pairs(ids) do n = n + 1 end
  return n
end

for _, row in ipairs(upstream.kinds()) do
  if row[1] == "2026-07-28" then goto continue end -- a stateless upstream keeps nothing for a client
  describe(("principals before an upstream of %s over %s"):format(row[1], row[2]), function()
    for _, asks in ipairs { "2026-07-28", "2025-06-18" } do
      it("count for themselves, with clients of " .. asks, function()
        local u <close> = upstream.start { revision = row[1], transport = row[2] }
        local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u }, scripts = auth })
        local ann <close> = g:client(asks, { token = "ann-1" })
        local bob <close> = g:client(asks, { token = "bob-1" })
        for i = 1, 3 do
          assert.equal(tostring(i), count(ann))
          assert.equal(tostring(i), count(bob))
        end
        assert.equal(2, sessions(u))
        for _, entry in ipairs(u.received) do
          assert.is_nil((entry.head or ""):find("ann-1", 1, true) or (entry.text or ""):find("ann-1", 1, true))
        end
      end)
    end

    it("keep their channel with another token of theirs", function()
      local u <close> = upstream.start { revision = row[1], transport = row[2] }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u }, scripts = auth })
      local one <close> = g:client("2026-07-28", { token = "ann-1" })
      local two <close> = g:client("2026-07-28", { token = "ann-2" })
      assert.equal("1", count(one))
      assert.equal("2", count(two))
    end)
  end)
  ::continue::
end

describe("a client of an older revision", function()
  it("has a session of its own at an upstream over HTTP, also beside others of its principal", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u }, scripts = auth })
    local one <close> = g:client("2025-11-25", { token = "ann-1" })
    local two <close> = g:client("2025-11-25", { token = "ann-1" })
    assert.same({ "1", "1", "2", "2" }, { count(one), count(two), count(one), count(two) })
  end)

  it("ends that session with its own", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local c <close> = g:client "2025-11-25"
    count(c)
    local session = u:all({ tool = "counter" })[1].session
    c:delete()
    require "spec.helpers.wait".for_fact("the end of the upstream's session", 20, function() return session.ended end)
    assert.equal(1, #u:all { method = "DELETE", session = session })
  end)
end)

describe("per", function()
  for per, wanted in pairs {
    gateway = { "1", "2", "3" }, principal = { "1", "1", "2" }, call = { "1", "1", "1" },
  } do
    it(per .. " decides instead", function()
      local u <close> = upstream.start { revision = "2025-11-25" }
      local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { per = per } }), scripts = auth })
      local ann <close> = g:client("2026-07-28", { token = "ann-1" })
      local bob <close> = g:client("2026-07-28", { token = "bob-1" })
      assert.same(wanted, { count(ann), count(bob), count(ann) })
    end)
  end
end)

describe("anonymous clients", function()
  it("on this machine are one principal", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u } })
    local one <close> = g:client "2026-07-28"
    local two <close> = g:client "2026-07-28"
    assert.same({ "1", "2" }, { count(one), count(two) })
  end)

  it("of a listener for other machines share nothing", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, {
      entries = upstream.plain { one = u }, config = { listen = "0.0.0.0:0", auth = "none", hosts = { "127.0.0.1", "localhost" } },
    })
    local one <close> = g:client "2026-07-28"
    local two <close> = g:client "2026-07-28"
    assert.same({ "1", "1", "1" }, { count(one), count(two), count(one) })
    local three <close> = g:client "2025-11-25"
    local four <close> = g:client "2025-11-25"
    assert.same({ "1", "1", "2" }, { count(three), count(four), count(three) })
  end)
end)

describe("one session of a client", function()
  it("uses one channel for its calls on all workers", function()
    local u <close> = upstream.start { revision = "2025-11-25" }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain({ one = u }, { one = { calls = 64, waiting = 64 } }), workers = 4 })
    local c <close> = g:client "2025-11-25"
    count(c)
    local opened = #u:all { method = "initialize" }
    local seen = { ["1"] = true }
    for _ = 1, 25 do
      local streams = {}
      for i = 1, 40 do streams[i] = c:open("tools/call", { name = "counter" }) end
      for _, stream in ipairs(streams) do
        local n = upstream.text(stream:answer())
        assert.is_nil(seen[n])
        seen[n] = true
        stream:close()
      end
    end
    assert.equal("1002", count(c))
    assert.equal(opened, #u:all { method = "initialize" })
    assert.equal(1, sessions(u))
  end)
end)

describe("an upstream that gives no session ids", function()
  it("gets none, over one channel for all", function()
    local u <close> = upstream.start { revision = "2025-11-25", sessions = false, get = false }
    local g <close> = upstream.gateway({ one = u }, { entries = upstream.plain { one = u }, scripts = auth })
    local wanted = 0
    for _, token in ipairs { "ann-1", "bob-1" } do
      for _, asks in ipairs { "2026-07-28", "2025-06-18" } do
        local c <close> = g:client(asks, { token = token, capabilities = { sampling = {} } })
        wanted = wanted + 1
        assert.equal(tostring(wanted), count(c))
      end
    end
    assert.equal(1, #u:all { method = "initialize" })
    assert.same({}, u:all({ method = "initialize" })[1].json.params.capabilities)
  end)
end)
