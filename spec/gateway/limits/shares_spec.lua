-- Of what a gateway has a limited number of, one client may not take all: each principal has half at most, and so has the
-- address of clients without one.
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local task_client = require "spec.helpers.task_client"

local MOST <const> = 16

local scripts = {
  ["auth/known.lua"] = credentials.script,
  ["tools/slow.lua"] = 'return tool { "Slow.", task = "required", function() sleep(60) return "done" end }',
}

-- What asks for one place.
local ASKS <const> = {
  listeners = function(c) c:open("subscriptions/listen", { notifications = {} }) end,
  jobs = function(c) c:call("tools/call", { name = "slow", arguments = {} }) end,
}

-- Asks for one place: true if it was given, false if it was refused.
local function takes(g, kind, c)
  local function numbers(status) return status.gauges[kind], status.counters.refused[kind] end
  local held, refused = numbers(g:status())
  ASKS[kind](c)
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
      for _ = 1, MOST // 2 do assert.is_true(takes(g, kind, bob)) end
    end)
  end
end)
