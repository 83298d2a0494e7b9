-- Clients cannot take all of what a gateway has a limited number of, neither one client nor several together. Places
-- that are held for long: each principal (or the address of clients without one) may hold as many as are free for the
-- others. Places that are held for a moment: the last part is for clients that hold few.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local task_client = require "spec.helpers.task_client"

local MOST <const>, CALLS <const> = 16, 256
local KEPT <const> = CALLS // 64

local scripts = {
  ["auth/known.lua"] = credentials.script,
  ["tools/slow.lua"] = 'return tool { "Slow.", task = "required", function() sleep(60) return "done" end }',
  ["tools/hold.lua"] = 'return tool { "Holds.", function() sleep(60) end }',
}

-- For each kind of place: a function by which a client asks for one.
local ASKS <const> = {
  listeners = function(c) c:open("subscriptions/listen", { notifications = {} }) end,
  jobs = function(c) c:call("tools/call", { name = "slow", arguments = {} }) end,
}

local REASON <const> = { requests_in_flight = "calls" }

-- Asks for one place: true if it was given, false if it was refused.
local function takes(g, kind, c, ask)
  local function numbers(status) return status.gauges[kind], status.counters.refused[REASON[kind] or kind] end
  local held, refused = numbers(g:status())
  ;(ask or ASKS[kind])(c)
  local now = g:wait_status(function(status)
    local held_now, refused_now = numbers(status)
    return held_now + refused_now == held + refused + 1
  end)
  return numbers(now) == held + 1
end

describe("one client", function()
  for kind in pairs(ASKS) do
    it(("has half of the places of %s at most, over all its sessions and tokens"):format(kind), function()
      local g <close> = gateway.start { scripts = scripts, constants = { listeners = MOST, tasks = MOST } }
      local function client(token) return g:client("2026-07-28", { token = token, capabilities = task_client.CAN }) end
      local ann <close> = client "ann-1"
      local again <close> = client "ann-2"
      local bob <close> = client "bob-1"
      for _ = 1, MOST // 4 do
        assert.is_true(takes(g, kind, ann))
        assert.is_true(takes(g, kind, again))
      end
      assert.is_false(takes(g, kind, ann))
      assert.is_false(takes(g, kind, again))
      assert.equal(MOST // 2, g:status().gauges[kind])
      assert.equal(2, g:status().counters.refused[kind])
      local carl <close> = client "carl-1"
      for _ = 1, MOST // 4 do assert.is_true(takes(g, kind, bob)) end
      assert.is_false(takes(g, kind, bob))
      for _ = 1, MOST // 8 do assert.is_true(takes(g, kind, carl)) end
    end)
  end
end)

describe("two clients that hold all calls but the last 64th", function()
  it("get none of the places that become free until a third, which has half of that part at once, holds as many", function()
    local g <close> = gateway.start { scripts = scripts, config = { limits = { calls_in_flight = CALLS } } }
    local function client(token) return g:client("2026-07-28", { token = token }) end
    local ann <close> = client "ann-1"
    local bob <close> = client "bob-1"
    local carl <close> = client "carl-1"
    local held = {}
    local function hold(who) held[#held + 1] = who:open("tools/call", { name = "hold" }) end
    local function may(who) return takes(g, "requests_in_flight", who, hold) end
    for i = 1, CALLS - KEPT do hold(i % 2 == 0 and ann or bob) end
    g:wait_status(function(status) return status.gauges.requests_in_flight == CALLS - KEPT end)
    assert.is_false(may(ann))
    for _ = 1, KEPT // 2 do assert.is_true(may(carl)) end
    assert.is_false(may(carl))
    for i = 1, 8 do
      held[i]:close()
      g:wait_status(function(status) return status.gauges.requests_in_flight == CALLS - KEPT // 2 - 1 end)
      assert.is_false(may(i % 2 == 0 and ann or bob))
      assert.is_true(may(carl))
    end
    assert.is_false(may(carl))
  end)
end)

describe("an address whose requests wait for authentication", function()
  it("leaves places for others", function()
    local waits = 'return auth { function(request) while not store.get "open" do sleep(0.005) end return { id = request.bearer } end }'
    local g <close> = gateway.start { scripts = { ["auth/main.lua"] = waits }, constants = { auth_waiting = CALLS } }
    local c <close> = g:client("2026-07-28", { token = "ann" })
    local function ask(from) c:open("tools/list", {}, { from = from }) end
    for _ = 1, CALLS - KEPT do ask "127.0.0.1" end
    g:wait_status(function(status) return status.gauges.auth_pending == CALLS - KEPT end)
    assert.is_false(takes(g, "auth_pending", "127.0.0.1", ask))
    for _ = 1, KEPT // 2 do assert.is_true(takes(g, "auth_pending", "127.0.0.2", ask)) end
    assert.is_false(takes(g, "auth_pending", "127.0.0.2", ask))
    assert.is_true(takes(g, "auth_pending", "127.0.0.3", ask))
  end)
end)

describe("a client with all sessions but the last 64th", function()
  it("leaves these to others, each of which has as many as are free", function()
    local g <close> = gateway.start { scripts = scripts, config = { sessions = { max = CALLS, per_principal = 10 * CALLS } } }
    local function opens(token)
      local ok, c = pcall(g.client, g, "2025-11-25", { token = token })
      if ok then c:close() end
      return ok
    end
    for _ = 1, CALLS - KEPT do assert.is_true(opens "ann-1") end
    assert.is_false(opens "ann-1")
    for _ = 1, KEPT // 2 do assert.is_true(opens "bob-1") end
    assert.is_false(opens "bob-1")
    assert.is_true(opens "carl-1")
  end)
end)
