-- store.cas: sets a value if the key has an expected one, in one step, whoever else writes to it.
local trusted = require "spec.helpers.trusted"
local upgrading = require "spec.helpers.upgrading"
local wait = require "spec.helpers.wait"

local run = trusted.run

-- Adds 1 to a value, `n` times, or until the store says that it is enough. Returns how often it was added, and how often
-- that is not known.
local COUNT <const> = [[return tool { "Counts.", input = { n = t.integer { optional = true } }, function(args)
  local added, unknown = 0, 0
  while args.n and added < args.n or not args.n and not store.get "enough" do
    local old, why = store.get "sum"
    local done = not why and store.cas("sum", old, { count = (old and old.count or 0) + 1 })
    if done then added = added + 1 elseif done == nil then unknown = unknown + 1 end
    if unknown > 0 or not args.n then sleep(0.001) end
  end
  return { added = added, unknown = unknown }
end }]]

describe("store.cas", function()
  local g, one, two
  setup(function()
    g = trusted.start { workers = 2, scripts = { ["tools/count.lua"] = COUNT }, config = { store = { bytes = "8MiB" } } }
    one, two = trusted.workers(g)
  end)
  teardown(function()
    one:close()
    two:close()
    g:stop()
  end)

  it("sets a value if the key has the expected one, or none if that is expected", function()
    assert.same({ false, true, false, true, false, false, "new", true }, run(one, [[
      local key, out = "plain", {}
      out[1] = store.cas(key, "old", "new")
      out[2] = store.cas(key, nil, "old")
      out[3] = store.cas(key, nil, "new")
      out[4] = store.cas(key, "old", "new")
      out[5] = store.cas(key, "old", "newer")
      out[6] = store.cas(key, json.null, "newer")
      out[7] = store.get(key)
      store.delete(key)
      out[8] = store.cas(key, nil, json.null) and store.cas(key, json.null, false) and store.cas(key, false, 0)
      return out]]))
  end)

  it("keeps the time to live of the key, or begins a new one", function()
    run(one, [[
      store.set("brief", 1, { ttl = 0.05 }) assert(store.cas("brief", 1, 2))
      store.set("again", 1) assert(store.cas("again", 1, 2, { ttl = 0.05 }))
      store.set("longer", 1, { ttl = 0.2 }) assert(store.cas("longer", 1, 2, { ttl = 1 * hours, sync = true }))
      assert(store.cas("for ever", nil, 1)) assert(store.cas("once", nil, 1, { ttl = 0.05 }))]])
    wait.for_fact("the values to expire", 20, function()
      return run(two, [[sleep(0.2) return store.get "brief" == nil and store.get "again" == nil and store.get "once" == nil]])
    end)
    assert.is_true(run(two, [[return store.cas("brief", nil, 1) and store.cas("longer", 2, 3) and store.cas("for ever", 1, 2)]]))
  end)

  it("takes tables with equal members for equal, whatever their order was", function()
    assert.same({ true, true, true, false, true, false, true, false, true }, run(one, [[
      local key, out = "table", {}
      local ordered = setmetatable({ z = 1, a = { y = 1, b = 2 } }, { __order = { "z", "a" } })
      store.set(key, { b = 1, a = { d = json.null, c = "x" } })
      out[1] = store.cas(key, { a = { c = "x", d = json.null }, b = 1 }, ordered)
      out[2] = store.cas(key, { a = { b = 2, y = 1 }, z = 1 }, ordered)
      out[3] = store.cas(key, store.get(key), json.array {})
      out[4] = store.cas(key, json.object {}, 1)
      out[5] = store.cas(key, json.array {}, { 1, 2 })
      out[6] = store.cas(key, { 2, 1 }, 1)
      out[7] = store.cas(key, ({ 1, 2 }), { a = 1 })
      out[8] = store.cas(key, { a = 1.5 }, 1)
      out[9] = store.cas(key, { a = 1 }, ordered) and store.cas(key, ordered, 1)
      return out]]))
  end)

  it("takes each value that was read for the one that is stored", function()
    assert.same({}, run(one, [[
      local broken = {}
      local values = { 0, -0.0, 0.1, 1e300, 5e-324, 2^53, math.mininteger, math.maxinteger, 1 / 3, "", "\0\1\127", "äöü\u{1F600}", ("x"):rep(70000),
        true, false, { { { {} } } }, { [""] = 1, ["\0"] = { "a" } }, { a = { b = { c = { 1, 2.5, "x", json.null } } } } }
      for i, value in ipairs(values) do
        assert(store.set("read", value))
        local read = store.get "read"
        if store.cas("read", read, { seen = read }) ~= true then broken[#broken + 1] = i end
        if store.cas("read", store.get "read", read) ~= true then broken[#broken + 1] = -i end
      end
      return json.array(broken)]]))
  end)

  it("refuses what is no value, and changes nothing then", function()
    local whys = run(one, [[
      local loop, out = {}, {}
      loop.loop = loop
      store.set("kept", 1)
      local calls = {
        { "kept", 1, 0 / 0 }, { "kept", 0 / 0, 2 }, { "kept", 1, loop }, { "kept", loop, 2 }, { "kept", 1, print },
        { "kept", 1, nil }, { ("k"):rep(1025), 1, 2 }, { 5, 1, 2 }, { "kept", 1, 2, 60 },
        { "kept", 1, 2, { ttl = 0 } }, { "kept", 1, 2, { sync = 1 } }, { "kept", 1, 2, { old = 1 } },
      }
      for i = 1, 12 do
        local ok, why = pcall(store.cas, table.unpack(calls[i], 1, 4))
        out[i] = not ok and tostring(why) or "taken"
      end
      assert(store.get "kept" == 1)
      return out]])
    for i, expected in ipairs { "cannot encode", "cannot encode", "cannot encode", "cannot encode", "cannot encode a function", "needs a value",
      "needs a key", "needs a key", "options must be a table", "'ttl' must be above 0", "'sync' must be true or false", "unknown option 'old'" } do
      assert.truthy(whys[i]:find("store.cas", 1, true) and whys[i]:find(expected, 1, true), whys[i])
    end
  end)

  it("compares values of megabytes, and leaves the old one if the new one has no room", function()
    assert.same({ true, false, "nil full", true }, run(one, [[
      local a, b, out = ("a"):rep(1 << 20), ("a"):rep((1 << 20) - 1) .. "b", {}
      assert(store.set("large", a))
      out[1] = store.cas("large", a, b)
      out[2] = store.cas("large", a, "x")
      local done, why = store.cas("large", b, ("c"):rep(8 << 20))
      out[3] = tostring(done) .. " " .. tostring(why)
      out[4] = store.cas("large", b, 1)
      store.delete "large"
      return out]]))
  end)

  it("loses no step of two workers that count", function()
    local streams = {}
    for i, client in ipairs { one, two, one, two } do streams[i] = client:open("tools/call", { name = "count", arguments = { n = 500 } }) end
    for _, stream in ipairs(streams) do assert.equal(500, stream:answer(30).result.structuredContent.added) end
    assert.equal(2000, run(one, 'return store.get "sum".count'))
  end)
end)

describe("store.cas while a gateway is two processes", function()
  it("loses no step of either, also while the store is handed over", function()
    local g <close> = upgrading.start_quick { workers = 1, scripts = { ["tools/count.lua"] = COUNT,
      ["tools/sum.lua"] = [[return tool { "The sum.", function()
        store.set("enough", true)
        return tostring(try(store.get "sum").count)
      end }]] } }
    local old <close> = g:client "2025-11-25"
    local during <close> = g:client "2026-07-28"
    local running = during:open("tools/call", { name = "count", arguments = {} })
    g:must_upgrade()
    local new <close> = g:client "2026-07-28"
    local added, unknown = 0, 0
    local function read(answer)
      local told = answer.result.structuredContent
      added, unknown = added + told.added, unknown + told.unknown
    end
    local streams = { old:open("tools/call", { name = "count", arguments = { n = 300 } }), new:open("tools/call", { name = "count", arguments = { n = 300 } }) }
    for _, stream in ipairs(streams) do read(stream:answer(60)) end
    assert.equal(600, added)
    local function ask() return tonumber(new:result("tools/call", { name = "sum" }).content[1].text) end
    ask()
    read(running:answer(60))
    local sum = ask()
    assert.is_true(sum >= added and sum <= added + unknown, ("%d, of which %d to %d were added"):format(sum, added, added + unknown))
  end)
end)
