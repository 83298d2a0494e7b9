-- store.near: the functions of the store for values of one process, in a room of their own.
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local run = trusted.run

local function close(...)
  for _, client in ipairs { ... } do client:close() end
end

describe("store.near", function()
  it("has the functions of the store, and other values, which all workers share", function()
    local g <close> = trusted.start { workers = 2 }
    local one, two = trusted.workers(g)
    assert.is_true(run(one, 'return store.set("a", "far") and store.near.set("a", { "near" }, { ttl = 1 * hours, sync = true })'))
    assert.same({ "far", "near", false, true, 1, 3, { "a", "n" }, { "a" }, false, true }, run(two, [[
      local near = store.near
      return { store.get "a", near.get "a"[1], near.add("a", 1), near.cas("a", { "near" }, { "nearer" }), near.incr("n"), near.incr("n", 2), near.list(),
        store.list(), store.cas("a", "near", 1), near.delete "n" }]]))
    assert.same({ { near = 1, scripts = 1 }, 2 }, run(two, [[return { { near = #store.near.list "a", scripts = #store.list "a" }, 2 }]]))
    local rooms = g:status().gauges.store_room_entries
    assert.same({ 1, 1 }, { rooms.near, rooms.scripts })
    assert.same({ "store.near.set takes 3 arguments, got 4", "store.near.get needs a key" }, run(one, [[
      local whys = {}
      for i, f in ipairs { function() store.near.set("a", 1, nil, 4) end, function() store.near.get(1) end } do
        whys[i] = tostring(select(2, pcall(f))):match "store%.near%.%a+ %a+[^:]*"
      end
      return whys]]))
    run(one, 'store.near.set("a", 1, { ttl = 0.01 }) store.delete "a"')
    g:wait_status(function(status) return status.gauges.store_entries == 0 end)
    close(one, two)
    assert.has_nothing_left(g)
  end)

  it("has a tenth of the store's limits for itself: who fills one of both takes nothing from the other", function()
    local g <close> = trusted.start { workers = 1, config = { store = { entries = 1000, bytes = "1MiB" } } }
    local me = g:client "2026-07-28"
    local fill = [[
      local n = 0
      while true do
        local done, why = %s.set("k" .. n, 1)
        if not done then return { n, why } end
        n = n + 1
      end]]
    assert.same({ 100, "full" }, run(me, fill:format "store.near"))
    assert.same({ 800, "full" }, run(me, fill:format "store"))
    assert.same({ true, "full" }, run(me, [[
      for _, key in ipairs(store.near.list()) do store.near.delete(key) end
      local _, why = store.near.set("large", ("x"):rep(110000))
      return { store.near.set("large", ("x"):rep(100000)), why }]]))
    assert.is_true(g:status().counters.store_room_refused.near >= 2)
    g:wait_log("store full", { room = "near" })
    me:close()
  end)

  it("refuses keys that are granted to other scripts", function()
    local g <close> = gateway.start { workers = 1, scripts = {
      ["tools/outside.lua"] = [[return tool { "It.", function()
        local whys = {}
        for i, name in ipairs { "set", "add", "get", "cas", "incr", "delete" } do whys[i] = select(2, store.near[name]("keys:a", 1, 2)) end
        for i = 1, 6 do assert(whys[i]:find "may not use the reserved store keys", whys[i]) end
        return table.concat(store.near.list(), " ") .. #whys
      end }]],
      ["tools/admin/inside.lua"] = [[return tool { "It.", function() return tostring(store.near.set("keys:a", 1)) .. store.near.list()[1] end }]],
    }, config = { scripts = { path = "scripts", grants = { ["tools/admin/"] = { store = { "keys:*" } } } } } }
    local c <close> = g:client "2026-07-28"
    assert.equal("truekeys:a", c:result("tools/call", { name = "admin_inside" }).content[1].text)
    assert.equal("6", c:result("tools/call", { name = "outside" }).content[1].text)
  end)

  it("is neither saved nor handed over: each process has its own", function()
    local g <close> = upgrading.start_quick { workers = 1, config = { store = { file = "store.db" } }, scripts = {
      ["tools/both.lua"] = 'return tool { "Counts.", function() return store.incr "n" .. " " .. store.near.incr "n" end }' } }
    local old <close> = g:client "2025-11-25"
    local function both(c) return c:result("tools/call", { name = "both" }).content[1].text end
    assert.equal("1 1", both(old))
    g:must_upgrade()
    local new <close> = g:client "2025-11-25"
    wait.for_fact("the store in the newer process", 20, function() return g:status().gauges.store_room_entries.scripts == 1 end)
    assert.equal("2 1", both(new))
    assert.equal("3 2", both(old))
    assert.equal("4 2", both(new))
  end)
end)
