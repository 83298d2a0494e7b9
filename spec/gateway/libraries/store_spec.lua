-- The store that all workers share: texts by key, each with a time at which it expires, bounded in number and bytes.
local bounds = require "spec.helpers.bounds"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

bounds.row([[host.store.add
  host.store.cas
  host.store.delete
  host.store.get
  host.store.incr
  host.store.keys
  host.store.lock
  host.store.set
  host.store.set_locked
  host.store.lost
  host.store.take]], 60, "a value of limits.call.output; a list of all of store.entries",
  { "for i = 1, 5000 do store.set('k' .. i, i) end", "return #store.list('', 100000)" },
  { "local s = ('x'):rep(4000000)", "return store.set('large', s)" })

local run = trusted.run

local function close(...)
  for _, client in ipairs { ... } do client:close() end
end

describe("the store", function()
  it("is one for all workers", function()
    local g <close> = trusted.start()
    local one, two = trusted.workers(g)
    assert.is_true(run(one, 'return host.store.set("a", "1\\0\\255" .. "x")'))
    assert.is_true(run(two, 'return host.store.get("a") == "1\\0\\255x"'))
    assert.is_false(run(two, 'return host.store.add("a", "2")'))
    assert.is_true(run(two, 'return host.store.add("b", "")'))
    assert.equal("", run(one, 'return host.store.get("b")'))
    assert.is_nil(run(one, 'return host.store.get("c")'))
    assert.equal(2, g:status().gauges.store_entries)
    assert.equal(6, g:status().gauges.store_bytes)
    run(one, 'host.store.delete("a") host.store.delete("a") host.store.delete("b")')
    assert.is_nil(run(two, 'return host.store.get("a")'))
    close(one, two)
    assert.has_nothing_left(g)
  end)

  it("gives its keys sorted, those of a prefix, and no more than are wanted", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    assert.same({ 3, "n:0001", "n:0500", "n:1000", 1000, 1, "n:0001", "", 0, true }, run(me, [[
      for i = 1000, 1, -1 do host.store.set(("n:%04d"):format(i), "x") end
      host.store.set("", "x") host.store.set("m", "x") host.store.set("n", "x") host.store.set("o", "x")
      local first, all, none = host.store.keys("n:", 3), host.store.keys "n:", host.store.keys "q"
      local sorted = true
      for i = 2, #all do sorted = sorted and all[i - 1] < all[i] end
      local found = { #first, all[1], all[500], all[1000], #all, #host.store.keys("m"), first[1], host.store.keys("", 1)[1], #none, sorted }
      for _, key in ipairs(host.store.keys "") do host.store.delete(key) end
      return found]]))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("counts", function()
    local g <close> = trusted.start()
    local one, two = trusted.workers(g)
    assert.equal(5, run(one, 'return host.store.incr("n", 5)'))
    assert.equal(3, run(two, 'return host.store.incr("n", -2)'))
    assert.equal("3", run(one, 'return host.store.get "n"'))
    assert.is_true(run(one, 'host.store.set("n", "x") return not pcall(host.store.incr, "n", 1)'))
    run(one, 'host.store.delete "n"')
    close(one, two)
    assert.has_nothing_left(g)
  end)

  it("hides entries that have expired, and frees them", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    run(me, [[
      for i = 1, 500 do host.store.set("brief" .. i, "x", 0.05) end
      host.store.set("kept", "x") host.store.set("again", "x", 0.05) host.store.set("again", "x")
      host.store.incr("sum", 1, 0.05) host.store.incr("sum", 1)]])
    wait.for_fact("a text to be past its time", 20, function()
      return run(me, 'return host.store.get "brief500"') == nil and run(me, 'return host.store.get "sum"') == nil
    end)
    assert.same({ "again", "kept" }, run(me, 'return host.store.keys ""'))
    assert.is_true(run(me, 'return host.store.add("brief1", "new")'))
    g:wait_status(function(status) return status.gauges.store_entries == 3 end)
    run(me, 'for _, key in ipairs(host.store.keys "") do host.store.delete(key) end')
    me:close()
    assert.has_nothing_left(g)
  end)

  it("has a cap of entries and bytes; entries that have expired are evicted first", function()
    -- of these, scripts may use 10 entries and 1,024 bytes
    local g <close> = trusted.start { workers = 1, config = { store = { entries = 13, bytes = "1348B" } } }
    local me = g:client "2026-07-28"
    assert.same({ 10, "full" }, run(me, [[
      local n, done, why = 0
      repeat
        done, why = host.store.set("k" .. n, "x")
        if done then n = n + 1 end
      until not done
      return { n, why }]]))
    assert.is_true(run(me, 'return host.store.set("k1", "y")')) -- replacing a text by one of equal length adds no bytes
    assert.same({ "full", "full", "full" }, run(me, [[
      local _, why = host.store.add("k10", "x")
      local _, sum = host.store.incr("n", 1)
      local _, long = host.store.set("k1", ("x"):rep(1024))
      return { why, sum, long }]]))
    assert.is_true(run(me, [[
      for i = 0, 9 do host.store.set("k" .. i, "x", 0.01) end
      sleep(0.05)
      return host.store.set("new", ("x"):rep(1021))]]))
    assert.equal(1, g:status().gauges.store_entries)
    run(me, 'host.store.delete "new"')
    me:close()
    assert.has_nothing_left(g)
  end)

  it("keeps its sums when workers write at once", function()
    local g <close> = trusted.start()
    local one, two = trusted.workers(g)
    local streams = {}
    for i = 1, 8 do
      local code = [[
        for i = 1, 2000 do
          host.store.incr("sum", 1)
          host.store.set("k" .. i % 50 .. vm, tostring(i), i % 3 == 0 and 0.001 or nil)
          if i % 7 == 0 then host.store.delete("k" .. i % 50 .. vm) end
          if i % 100 == 0 then host.store.keys("k", 20) sleep(0) end
        end]]
      streams[i] = (i % 2 == 0 and one or two):open("tools/call", trusted.code(code))
    end
    for _, stream in ipairs(streams) do trusted.read(stream:answer(10)) end
    assert.equal("16000", run(one, 'return host.store.get "sum"'))
    run(one, 'for _, key in ipairs(host.store.keys "") do host.store.delete(key) end')
    close(one, two)
    assert.has_nothing_left(g)
  end)
end)

describe("Base64", function()
  it("is written with its padding and read back, and nothing else is read", function()
    local g <close> = trusted.start { workers = 1 }
    local me = g:client "2026-07-28"
    for bytes, text in pairs { [""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foob = "Zm9vYg==", fooba = "Zm9vYmE=", foobar = "Zm9vYmFy" } do
      assert.equal(text, run(me, ("return host.base64.encode %q"):format(bytes)))
      assert.equal(bytes, run(me, ("return host.base64.decode %q"):format(text)))
    end
    assert.is_true(run(me, [[
      local all = {}
      for i = 0, 255 do all[#all + 1] = string.char(i) end
      all = table.concat(all):rep(5)
      return host.base64.decode(host.base64.encode(all)) == all and host.base64.encode "\255\254" == "//4="]]))
    for _, text in ipairs { "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z===", "====", "Zm-v", "Zm_v", "Zm9v\n", " Zm9v", "Zg\\0=", "Zm9v=" } do
      assert.is_nil(run(me, ('return host.base64.decode "%s"'):format((text:gsub("\n", "\\n")))), text)
    end
    me:close()
  end)
end)
