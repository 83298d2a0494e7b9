-- What scripts are told while the process that has the store does not answer: whether something may have been done.
local processes = require "spec.helpers.processes"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local SCRIPTS <const> = { ["tools/all.lua"] = [[return tool { "Uses the store.", function()
  local function told(value, why) return tostring(value) .. " " .. tostring(why) end
  return { all = { told(store.incr "n"), told(store.incr "n"), told(store.set("n", 9)), told(store.get "n"),
    told(store.lock("n", {}, function() return "in" end)), told(store.near.incr "n") } }
end }]], ["tools/cut.lua"] = [[return tool { "Is cancelled while it asks the store.", function()
  local ended = "not"
  local done = pcall(parallel, {
    function()
      local on_end <close> = closing(function() if ended == "not" then ended = "cleaned up" end end)
      store.incr "n"
      ended = "answered"
    end,
    function()
      sleep(0.005)
      error "cut"
    end,
  })
  return { done = done, ended = ended }
end }]], ["tools/ticks.lua"] = [[return tool { "Counts turns of its worker while the store is asked.", function()
  local ticks, answer = 0, nil
  parallel {
    function()
      local value, why = store.incr "n"
      answer = tostring(value) .. " " .. tostring(why)
    end,
    function()
      while not answer do
        sleep(0.001)
        ticks = ticks + 1
      end
    end,
  }
  return { ticks = ticks, answer = answer }
end }]] }

describe("a store whose process stands still", function()
  it("says of one operation that it may have been done, of the next ones that nothing was done, and has done nothing later", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = SCRIPTS }
    -- sessions of the older process: its answer closes a connection, and the next request goes by way of the newer one
    local old <close> = g:client "2025-11-25"
    local kept <close> = g:client "2025-11-25"
    local function use(c) return c:call("tools/call", { name = "all" }, 30).result.structuredContent.all end
    assert.same({ "1 nil", "2 nil", "true nil", "9 nil", "in nil", "1 nil" }, use(old))
    g:must_upgrade()
    local near
    wait.for_fact("the store in the newer process, which answers at once", 20, function()
      local all = use(old)
      near = tonumber(all[6]:match "%d+")
      return not table.concat(all):find "un" and g:status().gauges.store_room_entries.scripts == 1
    end)
    do
      local _ <close> = processes.stop(g)
      assert.same({ "nil unknown", "nil unavailable", "nil unavailable", "nil unavailable", "nil unavailable", ("%d nil"):format(near + 1) }, use(kept))
    end
    local again
    wait.for_fact("the store to answer", 20, function()
      again = use(old)
      return not table.concat(again):find "un"
    end)
    assert.equal("10 nil", again[1])
  end)

  it("holds up no other task of a worker that asks it", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = SCRIPTS }
    local old <close> = g:client "2025-11-25"
    local kept <close> = g:client "2025-11-25"
    local function ticks(c) return c:call("tools/call", { name = "ticks" }, 30).result.structuredContent end
    assert.equal("1 nil", ticks(kept).answer)
    g:must_upgrade()
    wait.for_fact("the store in the newer process, which answers at once", 20, function() return not ticks(old).answer:find "un" end)
    local _ <close> = processes.stop(g)
    local got = ticks(kept)
    assert.equal("nil unknown", got.answer)
    assert.is_true(got.ticks >= 3, got.ticks)       -- in the 45 ms for which the answer is waited for
  end)

  it("cancels a task that waits for it", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = SCRIPTS }
    local old <close> = g:client "2025-11-25"
    local kept <close> = g:client "2025-11-25"
    local function use(c, name) return c:call("tools/call", { name = name }, 30).result.structuredContent end
    assert.equal("1 nil", use(kept, "ticks").answer)
    g:must_upgrade()
    wait.for_fact("the store in the newer process, which answers at once", 20, function() return not use(old, "ticks").answer:find "un" end)
    do
      local _ <close> = processes.stop(g)
      assert.same({ done = false, ended = "cleaned up" }, use(kept, "cut"))
    end
    wait.for_fact("the store to answer", 20, function() return not use(old, "ticks").answer:find "un" end)
  end)
end)
