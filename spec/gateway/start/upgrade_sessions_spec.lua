-- What clients have opened before an upgrade goes on after it, on connections of any process; and all processes have
-- one store.
local gateway = require "spec.helpers.gateway"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/count.lua"] = 'return tool { "Counts.", function() local sum, why = store.incr "counted" return tostring(sum or why) end }',
  ["tools/wait.lua"] = 'return tool { "Waits.", input = { seconds = t.number { "Time" } }, function(a) sleep(a.seconds) return "waited" end, timeout = 60 }',
}

local function text_of(result) return result.content[1].text end

-- Closes the kept connection: the next request goes to the newest process.
local function let_connect_anew(client)
  if client.kept then client.kept:close() end
  client.kept = nil
end

describe("sessions and calls at an upgrade", function()
  it("go on in the process that opened them, through three upgrades", function()
    local g <close> = upgrading.start_quick { scripts = scripts, workers = 2 }
    local clients, calls = {}, {}
    local function open(revision)
      clients[#clients + 1] = g:client(revision)
      calls[#calls + 1] = clients[#clients]:open("tools/call", { name = "wait", arguments = { seconds = 12 } })
    end
    for _ = 1, 3 do
      open "2025-06-18"
      open "2024-11-05"
      g:must_upgrade()
    end
    open "2025-06-18"
    assert.equal(3, #g:older())
    local take = upgrading.counter()
    for _ = 1, 3 do
      for _, client in ipairs(clients) do
        let_connect_anew(client)
        take(text_of(client:result("tools/call", { name = "count", arguments = {} })))
      end
    end
    for _, call in ipairs(calls) do
      if call.answer then assert.equal("waited", text_of(call:answer(30).result)) end
    end
    for _, client in ipairs(clients) do
      if client.delete then client:delete() end
      client:close()
    end
    wait.for_fact("the older processes to end", 30, function() return #g:older() == 0 end)
  end)

  -- The session's process has no connection to the processes that had the store in the meantime, and still learns which
  -- process has it now.
  it("have the store, whose owners have changed and ended while they did not use it", function()
    local g <close> = upgrading.start_quick { scripts = scripts }
    local client <close> = g:client "2025-06-18"
    local first = g.pid
    for round = 1, 2 do
      for _ = 1, 2 do
        g:must_upgrade()
        let_connect_anew(client)
        wait.for_fact("the processes between to end", 30, function()
          local older = g:older()
          return #older == 1 and older[1] == first
        end)
      end
      -- In the second round the process is still connected to the one that owned the store two upgrades ago.
      assert.equal(tostring(round), text_of(client:result("tools/call", { name = "count", arguments = {} })))
    end
    client:delete()
  end)

  it("find a switch within a second, and run a job once", function()
    local g <close> = upgrading.start_quick {
      scripts = {
        ["tools/one.lua"] = 'return tool { "One.", function() return "one" end }',
        ["jobs/tick.lua"] = 'return job { "Ticks.", every = 1, function() log.info "tick" end }',
      },
    }
    local client <close> = g:client "2025-06-18"
    g:must_upgrade()
    let_connect_anew(client)
    assert.equal("one", text_of(client:result("tools/call", { name = "one", arguments = {} })))
    local stream = client:get_stream()
    -- clients of the older process are notified, whichever process makes the switch first
    for _, which in ipairs { "off", "on", "off" } do
      local code, _, err = gateway.exec { "switch", "--admin", "127.0.0.1:" .. g.admin_port, which, "tool", "one" }
      assert.equal(0, code, err)
      stream:wait_event("notifications/tools/list_changed", 20)
    end
    wait.for_fact("the switch in the older process", 20, function()
      let_connect_anew(client)
      return (client:call("tools/call", { name = "one", arguments = {} })).error
    end)
    local function runs() return select(2, g:log():gsub(" tick", "")) end
    local before = runs()
    local seconds = wait.timed(function() wait.for_fact("eight runs", 30, function() return runs() >= before + 8 end) end)
    -- if both processes ran the job, eight runs would take 4 s
    assert.is_true(seconds > 5.5, ("eight runs in %.1f s"):format(seconds))
  end)

  it("have the places of a tool with `concurrency` together", function()
    local g <close> = upgrading.start_quick { workers = 2, scripts = {
      ["tools/alone.lua"] = [[return tool { "Alone.", concurrency = 1, timeout = 60, function()
        local from <const> = time.now()
        sleep(0.2)
        return ("%.6f %.6f"):format(from, time.now())
      end }]],
    } }
    local older <close> = g:client "2025-06-18"
    g:must_upgrade()
    local newer <close> = g:client "2025-06-18"
    let_connect_anew(older)
    local calls = {}
    for i = 1, 8 do
      calls[i] = (i % 2 == 0 and older or newer):open("tools/call", { name = "alone", arguments = {} })
    end
    local times = {}
    for i, call in ipairs(calls) do
      local from, to = text_of(call:answer(30).result):match "^(%S+) (%S+)$"
      times[i] = { from = tonumber(from), to = tonumber(to) }
    end
    table.sort(times, function(a, b) return a.from < b.from end)
    for i = 2, #times do assert.is_true(times[i].from >= times[i - 1].to, "two calls ran at once") end
  end)
end)
