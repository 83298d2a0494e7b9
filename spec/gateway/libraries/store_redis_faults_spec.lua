-- The store of several gateways while their server does not do what it should: what each operation says then, how long it
-- takes, and that what was "unavailable" is never found.
local uv = require "luv"
local code = require "spec.helpers.code"
local nodes = require "spec.helpers.nodes"
local proxy = require "spec.helpers.proxy"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

if not redis.find() then
  pending "redis-tools is not installed"
  return
end

local run = code.run

-- Why each operation fails, and the longest time of one in seconds.
local ALL <const> = [[
  local key, longest, whys = "f", 0, {}
  local ways = {
    set = function() return store.set(key, 1) end, add = function() return store.add(key, 1) end, get = function() return store.get(key) end,
    delete = function() return store.delete(key) end, incr = function() return store.incr(key) end, list = function() return store.list() end,
    cas = function() return store.cas(key, 1, 2) end, lock = function() return store.lock(key, {}, function() return true end) end,
  }
  for name, f in pairs(ways) do
    local began = time.now()
    local value, why = f()
    longest, whys[name] = math.max(longest, time.now() - began), why or "done"
  end
  return { whys, longest }]]

-- `what` for what writes, `read` for what reads.
local function all(what, read)
  return { set = what, add = what, delete = what, incr = what, cas = what, lock = what, get = read or what, list = read or what }
end

describe("while the server of the store", function()
  it("is gone, nothing is done, and soon after its return everything is", function()
    local server <close> = redis.start()
    local g <close> = nodes.start(server.at)
    local me = g:client "2026-07-28"
    assert.is_true(run(me, [[return store.set("a", 1)]]))
    server:stop()
    run(me, [[return store.set("a", 2)]])
    local whys, longest = table.unpack(run(me, ALL))
    assert.same(all "unavailable", whys)
    assert.is_true(longest < 0.3 * wait.slower, longest)
    assert.equal("pong", run(me, [[return "pong"]]))
    server:begin()                                                 -- empty, and without the scripts
    wait.for_fact("the server to be used again", 10, function() return run(me, [[return store.set("b", 1)]]) end)
    assert.same({ true, { "b" } }, run(me, [[return { store.get "a" == nil, store.list() }]]))
    assert.same({}, run(me, [[for _, key in ipairs(store.list()) do store.delete(key) end return store.list()]]))
    me:close()
    assert.truthy(g:log():find("redis unavailable", 1, true))
    assert.has_nothing_left(g)
  end)

  it("stands still, what was sent is unknown; then nothing is sent until it answers", function()
    local server <close> = redis.start()
    local g <close> = nodes.start(server.at)
    local me = g:client "2026-07-28"
    assert.is_true(run(me, [[return store.set("n", 0)]]))
    server:kill "sigstop"
    local why, read, longest = table.unpack(run(me, [[
      local began = time.now()
      local _, why = store.incr "n"
      local _, read = store.get "n"
      return { why, read, time.now() - began }]]))
    assert.same({ "unknown", "unavailable" }, { why, read })
    assert.is_true(longest < 1 * wait.slower, longest)
    run(me, [[return tostring(store.incr "n")]])
    local whys = run(me, ALL)[1]
    local refused = 0
    for _, one in pairs(whys) do refused = refused + (one == "unavailable" and 1 or 0) end
    assert.is_true(refused >= 6, refused)                          -- the circuit is open: one PING each half second
    -- Neither does anyone wait: a hundred operations take less than one would.
    assert.is_true(run(me, [[
      local began = time.now()
      for _ = 1, 100 do store.incr "never" end
      return time.now() - began]]) < 1 * wait.slower)
    server:kill "sigcont"
    wait.for_fact("the server to be used again", 10, function() return run(me, [[return store.set("again", 1)]]) end)
    assert.same({ true, true }, run(me, [[return { store.get "never" == nil, store.get "n" <= 2 }]]))
    assert.truthy(g:log():find("redis available", 1, true))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("does not answer changes that wait for a replica, nothing more is sent soon", function()
    local server <close> = redis.told(function() end)
    local g <close> = nodes.start(server.at, { redis = { timeout = "100ms" } })
    local me = g:client "2026-07-28"
    local whys = run(me, [[
      local whys = {}
      local function set()
        local _, why = store.set("a", 1, { sync = true })
        whys[#whys + 1] = why
      end
      parallel { set, set, set }
      set()
      return whys]])
    assert.same({ "unknown", "unknown", "unknown", "unavailable" }, whys)
    me:close()
    g:stop()
  end)

  it("asks for the script late, the operation takes no longer for that", function()
    local server <close> = redis.told(function(words, client)
      if words[1] ~= "EVALSHA" then return end
      local timer = uv.new_timer()
      timer:start(1200, 0, function()
        timer:close()
        client:write "-NOSCRIPT No matching script.\r\n"
      end)
    end)
    local g <close> = nodes.start(server.at, { redis = { timeout = "2s" } })
    local me = g:client "2026-07-28"
    local why, seconds = table.unpack(run(me, [[
      local began = time.now()
      local _, why = store.set("a", 1)
      return { why, time.now() - began }]]))
    assert.equal("unknown", why)
    assert.is_true(seconds < 2.8 * wait.slower, seconds)
    me:close()
    g:stop()
  end)

  it("has its answers swallowed, what writes is unknown and never unavailable", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local g <close> = nodes.start("127.0.0.1:" .. between.port)
    local me = g:client "2026-07-28"
    assert.is_true(run(me, [[return store.set("a", 1)]]))
    between.swallows_answers = true
    local got = run(me, [[
      local results = {}
      for i = 1, 12 do results[i] = select(2, store.set("swallowed:" .. i, i)) or "done" end
      return results]], 20)
    between.swallows_answers = false
    between:cut()                                                  -- a connection that has lost bytes does not go on
    wait.for_fact("the server to be used again", 20, function() return run(me, [[return store.set("a", 2)]]) end)
    local sent = 0
    for i, why in ipairs(got) do
      local is_there = server:cli("EXISTS", "mp:spec:k:swallowed:" .. i) == "1"
      assert.not_equal("done", why)
      if is_there then assert.equal("unknown", why) end           -- nothing that was unavailable is ever found
      sent = sent + (why == "unknown" and 1 or 0)
    end
    assert.is_true(sent >= 3, sent)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("loses connections all the time, no operation is done twice", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local g <close> = nodes.start("127.0.0.1:" .. between.port)
    local me, cutter = g:client "2026-07-28", uv.new_timer()
    cutter:start(100, 100, function() between:cut() end)
    local counts = run(me, [[
      local counts = { done = 0, unknown = 0, unavailable = 0 }
      local ends = time.now() + 3
      while time.now() < ends do
        local sum, why = store.incr "n"
        why = sum and "done" or why
        counts[why] = counts[why] + 1
        if not sum then sleep(0.01) end
      end
      return counts]], 30)
    cutter:close()
    wait.for_fact("the server to be used again", 10, function() return run(me, [[return store.get "n" ~= nil]]) end)
    local sum = tonumber(server:cli("GET", "mp:spec:k:n"))
    assert.is_true(counts.done > 100, counts.done)
    assert.is_true(sum >= counts.done and sum <= counts.done + counts.unknown, ("%d, %d done, %d unknown"):format(sum, counts.done, counts.unknown))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("answers slowly, operations wait, and calls without them do not", function()
    local server <close> = redis.told(function(words, client)
      local timer = uv.new_timer()
      timer:start(100, 0, function()
        timer:close()
        if not client:is_closing() then client:write(words[1] == "GET" and "$1\r\n1\r\n" or ":1\r\n") end
      end)
    end)
    local g <close> = nodes.start(server.at)
    local me, other = g:client "2026-07-28", g:client "2026-07-28"
    local stream = me:open("tools/call", code.params [[local n = 0 for i = 1, 10 do n = n + store.get "a" end return { n, store.set("a", 1) }]])
    local longest = 0
    for _ = 1, 20 do
      local began = uv.hrtime()
      assert.equal(1, run(other, "return 1"))
      longest = math.max(longest, (uv.hrtime() - began) / 1e9)
    end
    assert.is_true(longest < 0.1 * wait.slower, longest)
    assert.same({ 10, true }, code.read(stream:answer(20)))
    me:close()
    other:close()
    assert.has_nothing_left(g)
  end)

  it("is full, a replica, or cannot save, it says which", function()
    local server <close> = redis.start()
    local g <close> = nodes.start(server.at)
    local me = g:client "2026-07-28"
    assert.is_true(run(me, [[return store.set("f", 1)]]))
    server:cli("CONFIG", "SET", "maxmemory", "1")
    local full = run(me, ALL)[1]
    assert.same({ "full", "full", "full", "done", "done", "done" }, { full.set, full.lock, full.incr, full.get, full.list, full.delete })
    assert.is_true(run(me, [[return store.delete "f"]]))
    server:cli("CONFIG", "SET", "maxmemory", "0")
    server:cli("SCRIPT", "FLUSH")
    assert.is_true(run(me, [[return store.set("f", 1)]]))
    server:cli("REPLICAOF", "127.0.0.1", "1")
    local replica = run(me, ALL)[1]
    assert.same({ "unavailable", "unavailable", "unavailable" }, { replica.set, replica.incr, replica.lock })
    server:cli("REPLICAOF", "NO", "ONE")
    wait.for_fact("the server to be used again", 10, function() return run(me, [[return store.set("f", 1)]]) end)
    me:close()
    assert.truthy(g:log():find("redis command refused", 1, true))
    assert.has_nothing_left(g)
  end)

  for text, wanted in pairs {
    ["-MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk."] = "unavailable",
    ["-LOADING Redis is loading the dataset in memory"] = "unavailable", ["-NOPERM this user has no permissions to run the 'evalsha' command"] = "unavailable",
    ["-NOPERM The user executing the script can't run this command or subcommand script: 5b, on @user_script:1."] = "unknown",
    ["-ERR Error running script (call to f_5b): @user_script:31: -OOM command not allowed when used memory > 'maxmemory'."] = "full",
    ["-NOREPLICAS Not enough good replicas to write."] = "unavailable",
  } do
    it("says " .. text:sub(2, 60) .. ", a change is " .. wanted, function()
      local server <close> = redis.told(function() return text .. "\r\n" end)
      local g <close> = nodes.start(server.at)
      local me = g:client "2026-07-28"
      assert.equal(wanted, run(me, [[return select(2, store.set("a", 1))]]))
      me:close()
      assert.has_nothing_left(g)
    end)
  end

  it("refuses the password, the log says so and operations are unavailable", function()
    local server <close> = redis.start { password = "right" }
    for password, why in pairs { wrong = "refuses the user or the password", [false] = "cluster.redis.password" } do
      local g <close> = nodes.start(server.at, { redis = { password = password or nil } })
      local me = g:client "2026-07-28"
      assert.equal("unavailable", run(me, [[return select(2, store.set("a", 1))]]))
      local log = g:log()
      assert.truthy(log:find(why, 1, true), log)
      assert.is_nil(log:find("wrong", 1, true))
      me:close()
    end
  end)
end)

describe("a lock of several gateways", function()
  for _, timeout in ipairs { "250ms", "3s" } do it("is lost before others can have it, where an operation may take " .. timeout, function()
    local server <close> = redis.start()
    local g <close> = nodes.start(server.at, { redis = { timeout = timeout } })
    local me = g:client "2026-07-28"
    local stream = me:open("tools/call", code.params [[
      local ended, began
      local _, why = store.lock("k", { ttl = 2 }, function()
        began = time.now()
        store.set("held", true)
        local _ <close> = setmetatable({}, { __close = function() ended = time.now() end })
        sleep(3600)
      end)
      return { why, ended - began }]])
    wait.for_fact("the lock to be held", 10, function() return server:cli("GET", "mp:spec:k:held") == "true" end)
    server:kill "sigstop"
    local why, seconds = table.unpack(code.read(stream:answer(30)))
    server:kill "sigcont"
    assert.equal("lost", why)
    assert.is_true(seconds < 2 * wait.slower, seconds)
    me:close()
    assert.has_nothing_left(g)
  end) end
end)
