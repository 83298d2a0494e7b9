-- The store of scripts in a server of Redis that several gateways share.
local code = require "spec.helpers.code"
local gateway = require "spec.helpers.gateway"
local nodes = require "spec.helpers.nodes"
local redis = require "spec.helpers.redis"
local wait = require "spec.helpers.wait"

if not redis.find() then
  pending "redis-tools is not installed"
  return
end

local run = code.run

-- Adds 1 to a key `n` times; each way of counting loses nothing.
local COUNT <const> = [[
  for _ = 1, %d do
    try(store.incr "sum")
    local done
    repeat
      local old = store.get "votes"
      done = store.cas("votes", old, { all = (old and old.all or 0) + 1 })
    until done
    try(store.lock("lock", { wait = 60 }, function(lock)
      local sum = store.get "locked" or 0
      sleep(0)
      return store.set("locked", sum + 1, { lock = lock })
    end))
  end
  return true]]

describe("the store of several gateways", function()
  local server, one, two, first, second
  setup(function()
    server = redis.start { args = { "--repl-diskless-sync-delay", "0", table.unpack(nodes.acl_args) } }
    local at = "redis://moonpool@" .. server.at
    one, two = nodes.start(at, { redis = { password = "pass" }, workers = 2 }), nodes.start(at, { redis = { password = "pass" } })
    first, second = one:client "2026-07-28", two:client "2026-07-28"
  end)
  teardown(function()
    first:close()
    second:close()
    one:__close()
    two:__close()
    server:__close()
  end)

  it("is one: what a call on one of them stores, calls on the other have", function()
    assert.same({ true, true, false, true, 3 }, run(first, [[return { store.set("a", { x = { 1, "zwei" } }), store.add("b", "new"), store.add("b", "newer"),
      store.cas("a", { x = { 1, "zwei" } }, "third"), store.incr("c", 3) }]]))
    assert.same({ "third", "new", 3, { "a", "b", "c" } }, run(second, [[return { store.get "a", store.get "b", store.get "c", store.list() }]]))
    assert.same({ false, 5, true, { "b", "c" } }, run(second, [[return { store.cas("a", "second", "x"), store.incr("c", 2), store.delete "a", store.list() }]]))
    assert.is_true(run(first, [[return store.get "a" == nil and store.get "c" == 5]]))
    assert.equal('"new"', server:cli("GET", "mp:spec:k:b"))
  end)

  it("has store.near in each process", function()
    assert.is_true(run(first, [[return store.near.set("here", 1)]]))
    assert.is_true(run(second, [[return store.near.get "here" == nil and store.get "here" == nil]]))
  end)

  it("loses no count, whichever way calls on both count", function()
    local streams = {}
    for i = 1, 4 do streams[i] = (i % 2 == 0 and first or second):open("tools/call", code.params(COUNT:format(15))) end
    for _, stream in ipairs(streams) do assert.is_true((code.read(stream:answer(60)))) end
    assert.same({ 60, 60, 60 }, run(first, [[return { store.get "sum", store.get("votes").all, store.get "locked" }]]))
  end)

  it("keeps numbers exact, and refuses to add to what is none", function()
    assert.same({ "9007199254740993", "-9223372036854775808" }, run(first, [[
      store.set("big", 9007199254740992) store.set("least", math.mininteger + 1)
      return { tostring(store.incr "big"), tostring(store.incr("least", -1)) }]]))
    local why = run(first, [[store.set("text", "7") return tostring(select(2, pcall(store.incr, "text")))]])
    assert.truthy(why:find("the value of 'text' is not a whole number", 1, true), why)
    why = run(first, [[store.set("most", math.maxinteger) return tostring(select(2, pcall(store.incr, "most")))]])
    assert.truthy(why:find("or the sum has more than 64 bits", 1, true), why)
  end)

  it("lists sorted, by pages, by any prefix", function()
    assert.same({ 2500, true, 1000, 7, "l:0007" }, run(second, [[
      for i = 1, 2500 do try(store.set(("l:%04d"):format(i), i)) end
      local all, sorted = store.list("l:", 9999), true
      for i = 2, #all do sorted = sorted and all[i - 1] < all[i] end
      return { #all, sorted, #store.list "l:", #store.list("l:", 7), store.list("l:", 7)[7] }]], 60))
    assert.same({ 2, 1, 3 }, run(second, [[
      for _, key in ipairs { "\255a", "\255\255", "\255\255b" } do try(store.set(key, 1)) end
      local n = { #store.list "\255\255", #store.list "\255a", #store.list "\255" }
      for _, key in ipairs(store.list "\255") do store.delete(key) end
      return n]]))
  end)

  it("has fences that rise, and refuses what an earlier holder writes", function()
    local stream = first:open("tools/call", code.params [[
      local inner
      local _, why = store.lock("held", { ttl = 3 }, function(lock)
        store.set("holds", lock.fence)
        while store.get "go" == nil do sleep(0.01) end
        inner = select(2, store.set("value", 1, { lock = lock }))
      end)
      return { why or "none", inner or "none" }]])
    wait.for_fact("the lock to be held", 10, function() return run(second, [[return store.get "holds"]]) end)
    assert.equal("1", server:cli("DEL", "mp:spec:l:held"))         -- a server that fails over may forget it
    local fence, before = table.unpack(run(second, [[
      return { store.lock("held", {}, function(lock) store.set("value", 2, { lock = lock }) return lock.fence end), store.get "holds" }]]))
    assert.is_true(fence > before)
    run(second, [[return store.set("go", true)]])
    assert.same({ "lost", "lost" }, code.read(stream:answer(20)))
    assert.equal(2, run(second, [[return store.get "value"]]))
    server:cli("SET", "mp:spec:lf", ("%d"):format(fence + 3600 * 1000000))        -- the clock of an earlier primary was an hour ahead
    assert.is_true(run(second, ([[return store.lock("later", {}, function(lock) return lock.fence end) == %d]]):format(fence // 1 + 3600000001)))
  end)

  it("gives a lock back when its call is cancelled", function()
    local stream = first:open("tools/call", code.params [[
      return store.lock("left", { ttl = 60 }, function() store.set("inside", true) sleep(3600) end)]])
    wait.for_fact("the lock to be held", 10, function() return run(second, [[return store.get "inside"]]) end)
    assert.equal("locked", run(second, [[return select(2, store.lock("left", {}, function() end))]]))
    stream:close()
    assert.is_true(run(second, [[return store.lock("left", { wait = 10 }, function() return true end)]]))
  end)

  it("says whether a replica has a change, if it is asked to", function()
    assert.same({ "not replicated", "written" }, run(first, [[return { select(2, store.set("s", "written", { sync = true })), store.get "s" }]]))
    assert.same({ 8, 8 }, run(first, [[
      local calls, why = {}, {}
      for i = 1, 8 do calls[i] = function() return select(2, store.incr("s8", 1, { sync = true })) end end
      for i, one in ipairs(try(parallel(calls))) do why[i] = one[1] == "not replicated" end
      return { #why, store.get "s8" }]]))
    local replica <close> = redis.start()
    replica:cli("REPLICAOF", "127.0.0.1", tostring(server.port))
    wait.for_fact("the replica to have it", 20, function() return run(first, [[return store.set("s", 1, { sync = true })]]) end)
    assert.same({ false, 9 }, run(first, [[return { store.add("s", 1, { sync = true }), store.incr("s8", 1, { sync = true }) }]]))
    assert.equal("9", replica:cli("GET", "mp:spec:k:s8"))
  end)

  it("refuses values above 1 MiB", function()
    assert.same({ true, "full" }, run(first, [[
      local fits = store.set("large", ("x"):rep((1 << 20) - 2))
      store.delete "large"
      return { fits, select(2, store.set("large", ("x"):rep(1 << 20))) }]]))
  end)

  it("forgets the names of what has expired, and all of it when nothing is left", function()
    run(first, [[for _, key in ipairs(store.list("", 9999)) do store.delete(key) end return true]], 60)
    assert.equal("0", server:cli("EXISTS", "mp:spec:kx", "mp:spec:kt"))
    run(first, [[for i = 1, 3000 do try(store.set("brief:" .. i, i, { ttl = 0.05 })) end return true]], 60)
    local names = tonumber(server:cli("ZCARD", "mp:spec:kx"))      -- those that lived when the last one was written
    assert.is_true(names < 1500, names)
    wait.for_fact("the index to be gone", 10, function() return server:cli("EXISTS", "mp:spec:kx", "mp:spec:kt") == "0" end)
    assert.is_true(run(first, [[return store.set("lasting", 1)]]))
    run(first, [[return store.set("brief", 1, { ttl = 0.05 })]])
    wait.for_fact("it to expire", 10, function() return run(first, [[return #store.list() == 1]]) end)
    assert.same({ "-1", "lasting" }, { server:cli("TTL", "mp:spec:kx"), server:cli("ZRANGE", "mp:spec:kx", "0", "-1") })
  end)

  it("is measured", function()
    assert.truthy(one:admin("/metrics").body:find('moonpool_redis_duration_seconds_count{operation="incr",outcome="ok"}', 1, true))
  end)
end)

describe("a script of several gateways", function()
  it("gets an error where it asks the store while it is loaded", function()
    local dir <close> = nodes.folder { ["tools/early.lua"] = 'local n = store.get "n" return tool { "Early.", function() return n end }' }
    local status, _, err = gateway.exec { "check", dir.path .. "/moonpool.yaml" }
    assert.equal(78, status)
    assert.truthy(err:find("early.lua:1: the store is in a server (cluster), which cannot be asked while scripts load", 1, true), err)
    assert.truthy(err:find("store.near is in this process", 1, true), err)
  end)

  it("uses the store of `moonpool test` in its spec", function()
    local dir <close> = nodes.folder { ["tools/n.lua"] = 'return tool { "N.", function() return "n" .. try(store.incr "n") end }',
      ["tools/n_spec.lua"] = 'it("counts", function() assert.equal("n1", call("n").text) end)' }
    assert.equal(0, (gateway.exec({ "test", "-c", dir.path .. "/moonpool.yaml" })))
  end)
end)

describe("moonpool check --connect", function()
  local server
  setup(function() server = redis.start { args = nodes.acl_args } end)
  teardown(function() server:__close() end)

  local function check(user, more)
    local config = { cluster = { name = "spec", redis = { url = "redis://" .. user .. "@" .. server.at, password = more or "pass" } },
      seal_keys = { nodes.SEAL } }
    local path = gateway.prepare { config = config, scripts = { ["tools/one.lua"] = 'return tool { "One.", function() return 1 end }' } }
    local status, out, err = gateway.exec { "check", "--connect", path .. "/moonpool.yaml" }
    os.execute("rm -r " .. path)
    return status, out, err
  end

  it("says what the server of `cluster` is, and what the store lacks there", function()
    local _, out, err = check "moonpool"
    local status
    assert.truthy(out:find("cluster.redis: a server at " .. server.at, 1, true), out .. err)
    assert.truthy(err:find("cluster.redis: the user may not use INFO: version and maxmemory-policy are not checked", 1, true), err)
    server:cli("ACL", "SETUSER", "moonpool", "+info")
    status, out, err = check "moonpool"
    assert.truthy(out:find("cluster.redis: %a+ [%d.]+ at 127"), out)
    assert.equal("", err)
    assert.equal(0, status)
    server:cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert.truthy(select(3, check "moonpool"):find("maxmemory-policy is allkeys-lru: it forgets values when it is full", 1, true))
    server:cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server:cli("ACL", "SETUSER", "moonpool", "-zadd")
    status, out, err = check "moonpool"
    assert.is_nil(out:find("cluster.redis", 1, true))
    assert.equal(1, status)
    assert.truthy(err:find("ZADD: ", 1, true) and err:find("several-nodes.md has what the user", 1, true), err)
    status, out, err = check("moonpool", "wrong")
    assert.is_nil(out:find("cluster.redis", 1, true))
    assert.equal(1, status)
    assert.truthy(err:find("refuses the user or the password", 1, true), err)
    assert.equal("0", server:cli "DBSIZE")
  end)

  it("says once where no server is, and what next", function()
    local gone <close> = redis.start {}
    gone:kill()
    local path = gateway.prepare { config = { cluster = { name = "spec", redis = "redis://" .. gone.at }, seal_keys = { nodes.SEAL } }, scripts = {} }
    local status, _, err = gateway.exec { "check", "--connect", path .. "/moonpool.yaml" }
    os.execute("rm -r " .. path)
    assert.equal(1, status)
    local line = ("cluster.redis: %s: connection refused: nothing listens at this port\n  hint: `redis-cli -u URL ping`"):format(gone.at)
    assert.truthy(err:find(line, 1, true), err)
  end)
end)

describe("cluster in the configuration", function()
  local function check(text)
    local path = gateway.prepare { config = text, scripts = {} }
    local status, _, err = gateway.exec { "check", path .. "/moonpool.yaml" }
    os.execute("rm -r " .. path)
    return status, err
  end
  local seal = 'seal_keys: ["sixteen characters or more"]\n'

  for text, wanted in pairs {
    ["cluster: {redis: redis://r}"] = "'cluster' needs 'name'", ["cluster: {name: prod}"] = "'cluster' needs 'redis'",
    ["cluster: {name: Prod, redis: redis://r}"] = "lower-case letters", ["cluster: {name: prod, redis: http://r}"] = "must begin with redis:// or rediss://",
    ["cluster: {name: prod, redis: redis://a:b@r}"] = "a password does not belong in a URL",
    ["cluster: {name: prod, redis: redis:///1}"] = "the host is missing",
    ["cluster: {name: prod, redis: redis://r/one}"] = "only the number of a database", ["cluster: {name: prod, redis: redis://r:99999}"] = "port",
    ["cluster: {name: prod, redis: {url: redis://r, timeout: 1m}}"] = "timeout", ["cluster: {name: prod, nodes: a}"] = "unknown key 'nodes'",
    ["cluster: {name: prod, redis: {url: redis://r, sentinels: [s1]}}"] = "the port is missing",
    ["cluster: {name: prod, redis: redis://user@r}"] = "a user without 'password'",
    ["cluster: {redis: {sentinels: [\"s1:26379\"]}}"] = "'cluster' needs 'name'", ["cluster: {redis: {timeout: 1s}}"] = "'cluster' needs 'name'",
  } do
    it("is refused: " .. text, function()
      local status, err = check(seal .. text .. "\n")
      assert.equal(78, status, err)
      assert.truthy(err:find(wanted, 1, true), err)
      assert.truthy(err:find(":2:", 1, true), err)
    end)
  end

  it("needs seal_keys", function()
    local status, err = check "cluster: {name: prod, redis: redis://r}\n"
    assert.equal(78, status)
    assert.truthy(err:find("'cluster' needs 'seal_keys'", 1, true), err)
  end)

  it("has users, ports and databases in its URL", function()
    for _, url in ipairs { "redis://r", "rediss://user@redis.internal:6380/15", "redis://[::1]:7000", "redis://[::1]", "redis://127.0.0.1/" } do
      local status, err = check(seal .. ('scripts: {watch: false}\ncluster: {name: prod, redis: {url: "%s", password: x}}\n'):format(url))
      assert.equal(0, status, err)
    end
  end)
end)
