-- The limits of a gateway while it is several processes, as after an upgrade: they count what all processes have, and
-- the places of one that has ended are free.
local uv = require "luv"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local BOUND = 30

local scripts = {
  ["tools/hold.lua"] = 'return tool { "Holds.", task = "optional", timeout = 120, function() sleep(100) return "held" end }',
  ["tools/one.lua"] = 'return tool { "One.", function() return "one" end }',
}

local function start(config, constants)
  config.overload = "off" -- the machine may be busy
  return upgrading.start_quick { workers = 2, scripts = scripts, config = config, constants = constants }
end

-- Opens a session; false if a limit refuses it.
local function opens(g)
  local id, response = wire.initialize(g, "2025-06-18")
  if id then return true end
  assert.equal(429, response.status)
  assert.truthy(tonumber(response.headers["retry-after"]))
  return false
end

-- Asserts that exactly one place is free: `again` takes it, and one more request is refused.
local function one_is_free(what, again)
  wait.for_fact(what, BOUND, again)
  assert.is_false(again())
end

local function leave(client)
  client:delete()
  client:close()
end

local function kill(pid)
  uv.kill(pid, "sigkill")
  wait.for_fact("the end of " .. pid, BOUND, function() return not upgrading.lives(pid) end)
end

describe("while a gateway is several processes", function()
  for key, sessions in pairs { max = { max = 3 }, per_principal = { per_principal = 3 } } do
    it("sessions." .. key .. " counts their sessions together", function()
      local g <close> = start { sessions = sessions }
      local first = g.pid
      local a = g:client "2025-06-18"
      local second = g:must_upgrade()
      local own = { g:client "2025-06-18", g:client "2025-06-18" }
      assert.is_false(opens(g))
      g:must_upgrade()
      assert.is_false(opens(g))
      assert.equal(2, #g:older())
      uv.kill(first, "sigstop") -- a process that stands still keeps its sessions, and no other process waits for it
      assert.is_false(opens(g))
      uv.kill(first, "sigcont")
      leave(a)
      one_is_free("the place of a session that was closed", function() return opens(g) end)
      kill(second)
      for i = 1, 2 do wait.for_fact("place " .. i .. " of the process that was killed", BOUND, function() return opens(g) end) end
      assert.is_false(opens(g))
      for _, one in ipairs(own) do one:close() end
    end)
  end

  it("limits.calls_in_flight counts their calls together", function()
    local g <close> = start { limits = { calls_in_flight = 2 } }
    -- waits, since a client gets its answer a moment before the place of its call is free
    local function wait_calls(count)
      g:wait_status(function(status) return status.gauges.requests_in_flight == count end, BOUND)
    end
    local function hold(count)
      local client = g:client "2026-07-28"
      wait_calls(count - 1)
      client:open("tools/call", { name = "hold", arguments = {} })
      wait_calls(count)
      return client
    end
    local function runs()
      local client <close> = g:client "2026-07-28"
      local answer, response = client:call("tools/call", { name = "one", arguments = {} })
      if answer.result then return true end
      assert.equal(503, response.status)
      return false
    end
    local session <close> = g:client "2025-06-18"
    local a = hold(1)
    local second = g:must_upgrade()
    assert.is_true(runs())
    session.kept:close()
    session.kept = nil
    wait_calls(1) -- the next call goes from the newest process to the one that has the session, and takes one place
    assert.equal("one", session:result("tools/call", { name = "one", arguments = {} }).content[1].text)
    local b = hold(2)
    assert.is_false(runs())
    g:must_upgrade()
    assert.is_false(runs())
    kill(second)
    wait.for_fact("the place of the process that was killed", BOUND, runs)
    b:close()
    local c = hold(2)
    assert.is_false(runs())
    a:close()
    wait.for_fact("the place of the call whose client has left", BOUND, runs)
    c:close()
  end)

  it("no limit is exceeded by calls that begin in two of them at once", function()
    local g <close> = start { limits = { calls_in_flight = 5 } }
    local clients = {}
    for i = 1, 10 do clients[i] = g:client "2025-06-18" end
    g:must_upgrade()
    for i = 11, 20 do clients[i] = g:client "2026-07-28" end
    for i = 1, 20 do clients[i % 2 * 10 + (i + 1) // 2]:open("tools/call", { name = "hold", arguments = {} }) end
    local status = g:wait_status(function(status) return status.gauges.requests_in_flight + status.counters.refused.calls == 20 end, BOUND)
    local running = status.gauges.requests_in_flight
    assert.is_true(running >= 1 and running <= 5, running)
    for _, client in ipairs(clients) do client:close() end
  end)

  it("the limit of tasks counts those of all together", function()
    local g <close> = start({}, { tasks = 2 })
    local client, second
    local function begins()
      local answer = client:call("tools/call", { name = "hold", arguments = {}, task = { ttl = 100000 } })
      return answer.result ~= nil
    end
    local clients = {}
    for i = 1, 3 do
      client = g:client "2025-11-25"
      clients[i] = client
      if i < 3 then
        assert.is_true(begins())
        second = i == 1 and g:must_upgrade() or second
        if i == 2 then g:must_upgrade() end
      end
    end
    assert.is_false(begins())
    kill(second)
    one_is_free("the place of the process that was killed", begins)
    for _, one in ipairs(clients) do one:close() end
  end)
end)
