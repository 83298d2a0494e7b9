-- store.lock: a function runs while its call alone has the lock, whatever ends first: the function, its call, or the
-- lock.
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"
local wait = require "spec.helpers.wait"

local run = trusted.run

-- Counts under the lock, in three steps that another call would disturb.
local COUNT <const> = [[return tool { "Counts.", input = { n = t.integer }, function(args)
  for _ = 1, args.n do
    local done, why = store.lock("sum", { wait = 60 }, function()
      local sum = store.get "sum" or 0
      sleep(0)
      return store.set("sum", sum + 1)
    end)
    if not done then return nil, why end
  end
  return "counted"
end }]]

describe("store.lock", function()
  local g, one, two
  setup(function()
    g = trusted.start { workers = 2, scripts = { ["tools/count.lua"] = COUNT,
      ["lib/early.lua"] = "return { told = { pcall(store.lock, 'early', {}, function() return 1 end) } }",
      ["tools/early.lua"] = "local early = require 'early' return tool { 'It.', function() return tostring(early.told[2]) end }",
    }, config = { limits = { call = { cpu = "20s" } } } }
    one, two = trusted.workers(g)
  end)
  teardown(function()
    one:close()
    two:close()
    g:stop()
  end)
  after_each(function() assert.same({}, run(one, 'return json.array(host.store.keys "lock:")')) end)

  it("gives what its function gives, and the lock to nobody else meanwhile", function()
    assert.same({ "a", 2, true, "key", true, "locked", "locked", "other", 0 }, run(one, [[
      local out, inner = {}, nil
      local a, b, none = store.lock("key", {}, function(lock)
        out[3], out[4], out[5] = math.type(lock.fence) == "integer", lock.key, not pcall(function() lock.fence = 1 end)
        out[6] = select(2, store.lock("key", { ttl = 2 }, function() return "twice" end))
        out[7] = select(2, store.lock("key", { wait = 0.1 }, function() return "twice" end))
        out[8] = store.lock("other", nil, function() return "other" end)
        return "a", 2, nil
      end)
      out[1], out[2] = a, b
      out[9] = select("#", store.lock("key", {}, function() end))
      return out]]))
  end)

  it("gives the lock back whatever becomes of the function", function()
    for code, wanted in pairs { ["error 'a bug'"] = "a bug", ["fail 'no such thing'"] = "no such thing", ["try(nil, 'not there')"] = "not there" } do
      local why = run(one, ("return tostring(select(2, pcall(store.lock, 'fails', {}, function() sleep(0) %s end)))"):format(code))
      assert.truthy(why:find(wanted, 1, true), why)
      assert.is_true(run(two, "return store.lock('fails', {}, function() return true end)"))
    end
  end)

  it("excludes the calls of other workers, and lets them wait", function()
    local streams = {}
    for i, client in ipairs { one, two, one, two } do streams[i] = client:open("tools/call", { name = "count", arguments = { n = 25 } }) end
    for _, stream in ipairs(streams) do assert.equal("counted", stream:answer(60).result.content[1].text) end
    assert.equal(100, run(one, 'return store.get "sum"'))
  end)

  it("has fences that rise, also when the wall clock was set back", function()
    assert.is_true(run(one, [[
      local last, rises = 0, true
      local function lock(key) return store.lock(key, {}, function(lock) return lock.fence end) end
      for i = 1, 200 do
        local fence = lock(i % 2 == 0 and "even" or "odd")
        rises, last = rises and fence > last, fence
      end
      rises = rises and last >= 1.7e15
      host.store.set("fence:", tostring(last + 3600 * 1000000))
      rises = rises and lock "even" == last + 3600000001 and lock "odd" == last + 3600000002
      host.store.delete "fence:"
      return rises]]))
  end)

  it("has fences that rise over a process that was killed, where the store has a file, whatever the clock says", function()
    local keeper = trusted.start { config = { store = { file = "store.db" } } }
    local client = keeper:client "2026-07-28"
    local last = run(client, [[
      local function lock() return store.lock("killed", {}, function(lock) return lock.fence end) end
      host.store.set("fence:", tostring(lock() + 3600 * 1000000))      -- the clock was set back by an hour
      return lock()]])
    keeper:wait_status(function(status) return status.gauges.store_unsaved == 0 end)
    keeper:kill()
    keeper = gateway.start { dir = keeper.dir }
    client = keeper:client "2026-07-28"
    assert.equal(last + 1, run(client, [[return store.lock("killed", {}, function(lock) return lock.fence end)]]))
    client:close()
    keeper:__close()
  end)

  it("cancels the function once the lock is lost, and leaves it to its new holder", function()
    assert.same({ "nil lost", "closed", false, "99", "nil lost", "nil lost", "nil lost" }, run(one, [[
      local out = {}
      local function told(value, why) return tostring(value) .. " " .. tostring(why) end
      out[1] = told(store.lock("lost", { ttl = 2 }, function(lock)
        local on_end <close> = closing(function() out[2] = "closed" end)
        host.store.set("lock:lost", "99")
        out[5] = told(store.set("guarded", 1, { lock = lock }))
        sleep(60)
        out[3] = true
      end))
      out[3] = out[3] or false
      out[4] = host.store.get "lock:lost"
      host.store.delete "lock:lost"
      out[6] = told(store.lock("lost", { ttl = 2 }, function() host.store.delete "lock:lost" return "unnoticed" end))
      out[7] = told(store.lock("lost", { ttl = 2 }, function() host.store.delete "lock:lost" sleep(60) end))
      return out]]))
    assert.equal(3, g:status().counters.store_locks_lost)
  end)

  it("renews the lock, also while the function computes and never waits", function()
    assert.same({ "held", "locked" }, run(two, [[
      local taken
      local held = store.lock("long", { ttl = 2 }, function()
        local began = time.now()
        while time.now() < began + 2.5 do end
        taken = select(2, store.lock("long", {}, function() end))
        return "held"
      end)
      return { held, taken }]], 60))
  end)

  it("writes a value only while the lock is held with its fence", function()
    assert.same({ true, "nil lost", "in", 3 }, run(one, [[
      local kept, errors = nil, 0
      local done = store.lock("guard", {}, function(lock)
        kept = lock
        return store.set("guarded", "in", { lock = lock, ttl = 60 })
      end)
      local after, why = store.lock("guard", {}, function() return store.set("guarded", "late", { lock = kept }) end)
      for _, lock in ipairs { { key = "guard", fence = kept.fence }, kept.fence, json.null } do
        local ok, said = pcall(store.set, "guarded", 1, { lock = lock })
        if not ok and tostring(said):find "'lock' must be what store.lock gives its function" then errors = errors + 1 end
      end
      assert(not pcall(store.near.set, "guarded", 1, { lock = kept }) and not pcall(store.add, "guarded", 1, { lock = kept }))
      return { done, tostring(after) .. " " .. tostring(why), store.get "guarded", errors }]]))
  end)

  it("ends with its call, and is free then", function()
    local stream = two:open("tools/call", trusted.code [[
      store.lock("of a call", { ttl = 3600 }, function()
        local on_end <close> = closing(function()
          sleep(0.01)
          store.set("closer", { select(2, store.lock("of a call", {}, print)), tostring(select(2, pcall(store.lock, "free", {}, print))) })
        end)
        store.set("held", true)
        sleep(3600)
      end)]])
    wait.for_fact("the lock to be held", 20, function() return run(one, 'return store.get "held"') end)
    assert.equal("locked", run(one, 'return select(2, store.lock("of a call", {}, function() end))'))
    stream:hang_up()
    assert.equal("free", run(one, 'return store.lock("of a call", { wait = 20 }, function() return "free" end)'))
    local closer = run(one, 'return store.get "closer"')
    assert.equal("locked", closer[1])
    assert.matches("store.lock is not available to <close> handlers of a cancelled call", closer[2])
    two = g:client "2026-07-28"
  end)

  it("refuses what it does not understand, and where it may not wait", function()
    local whys = run(one, [[
      local out, f = {}, function() return 1 end
      local calls = { { 1, {}, f }, { ("k"):rep(1025), {}, f }, { "k", {} }, { "k", f }, { "k", { ttl = 1 }, f }, { "k", { ttl = 0 / 0 }, f },
        { "k", { ttl = 3601 }, f }, { "k", { wait = -1 }, f }, { "k", { wait = "long" }, f }, { "k", { wait = math.huge }, f },
        { "k", { time = 1 }, f }, { "k", {}, f, 1 } }
      for i, call in ipairs(calls) do out[i] = tostring(select(2, pcall(store.lock, table.unpack(call, 1, 4)))) end
      return out]])
    for i, expected in ipairs { "needs a key", "needs a key", "takes a function", "options must be a table", "'ttl' must be 2 to 3600", "'ttl' must be 2",
      "'ttl' must be 2", "'wait' must be 0 to 3600", "'wait' must be 0", "'wait' must be 0", "unknown option 'time'", "store.lock takes 3 arguments, got 4" } do
      assert.truthy(whys[i] and whys[i]:find("store.lock", 1, true) and whys[i]:find(expected, 1, true), tostring(whys[i]))
    end
    assert.matches("lib/early.lua:1: may not wait here", one:result("tools/call", { name = "early" }).content[1].text)
  end)

  it("counts as an entry of scripts, and the near one is another", function()
    assert.same({ "near locked", 0 }, run(one, [[
      local f = function() return select(2, store.near.lock("both", {}, function() end)) end
      local why = store.near.lock("both", {}, function() return store.lock("both", {}, f) end)
      return { "near " .. why, #host.store.keys "near lock:" }]]))
  end)
end)

describe("a store that scripts fill with locks", function()
  it("says that it is full, and has room again when their calls have ended", function()
    local g <close> = trusted.start { workers = 1, config = { store = { entries = 20, bytes = "64KiB" } } }
    local me = g:client "2026-07-28"
    local out = run(me, [[
      local function nest(i)
        local got, why = store.lock("k" .. i, {}, function() return nest(i + 1) end)
        return got or why .. " at " .. i
      end
      return nest(1)]])
    assert.equal("full at 17", out)
    assert.equal(1, g:status().gauges.store_entries)
    assert.equal("free", run(me, 'return store.lock("k1", {}, function() return "free" end)'))
    me:close()
    assert.has_nothing_left(g)
  end)
end)
