-- What a script of one node publishes, and what a reload changes there, reaches the clients of all nodes of a cluster, once
-- each. After a loss, and only then, a node tells its clients that there may have been changes.
local code = require "spec.helpers.code"
local fanned = require "spec.helpers.fanned"
local gateway = require "spec.helpers.gateway"
local proxy = require "spec.helpers.proxy"
local redis = require "spec.helpers.redis"
local upgrading = require "spec.helpers.upgrading"
local nodes = require "spec.helpers.nodes"
local wait = require "spec.helpers.wait"

local it_real = redis.it(it, pending)

local function write(g, path, text)
  local file <close> = assert(io.open(g.dir .. "/" .. path, "wb"))
  file:write(text)
end

local function assert_at_rest(...)
  for _, g in ipairs { ... } do fanned.wait_rest(g) end
end

describe("nodes of a cluster", function()
  it_real("notify clients of all nodes of a resource that a script updates on one, once each", function()
    local server <close> = redis.start { args = nodes.acl_args }
    local all_nodes <close> = fanned.start({ at = "redis://moonpool@" .. server.at, cli = function(_, ...) return server:cli(...) end }, 3,
      { redis = { password = "pass" }, workers = 2 })
    local a, b, c = table.unpack(all_nodes)
    local all = {}
    for _, g in ipairs { a, b, c } do
      all[#all + 1] = fanned.session(g)
      all[#all + 1] = fanned.listener(g)
    end
    for i = 1, 6 do
      fanned.update(all[i])
      fanned.wait_count(all, "note://one", i)
    end
    fanned.update(all[1], "notes://7")
    fanned.fence(all)
    for _, each in ipairs(all) do assert.same(fanned.notes(12), fanned.told(each)) end
    for _, g in ipairs { a, b, c } do assert.equal(0, fanned.gaps(g)) end
    fanned.close(table.unpack(all))
    assert_at_rest(a, b, c)
  end)

  it_real("notify clients of all nodes of the list that a reload of one changes, once each", function()
    local server <close> = redis.start()
    local both <close> = fanned.start(server, 2, { workers = 2 })
    local a, b = table.unpack(both)
    local all = { fanned.session(a), fanned.session(b), fanned.listener(a), fanned.listener(b) }
    write(a, "scripts/tools/new.lua", 'return tool { "New.", function() return "new" end }')
    fanned.wait_count(all, "tools", 1)
    write(a, "scripts/prompts/hello.lua", 'return prompt { "Hello again.", "hello" }')
    fanned.wait_count(all, "prompts", 1)
    fanned.wait_reloaded(server, 2)
    fanned.fence(all)                                              -- the node that was reloaded twice still receives
    for _, each in ipairs(all) do assert.same(fanned.notes(4, { "prompts", "tools" }), fanned.told(each), fanned.losses(a, b)) end
    fanned.close(table.unpack(all))
    assert_at_rest(a, b)
  end)

  it_real("notify of what only some may see those alone, on all nodes", function()
    local server <close> = redis.start()
    local scripts = {
      ["auth/main.lua"] = [[return auth { function(request)
        return { id = try(request.bearer, "no token"), scopes = request.bearer == "boss" and { "ops" } or {} }
      end }]],
      ["tools/secret.lua"] = [[return tool { "Secret.", scopes = { "ops" }, function() return "secret" end }]],
    }
    for path, text in pairs(fanned.scripts) do scripts[path] = text end
    local TOKEN <const> = ("o"):rep(32)
    local config = { admin = { listen = "127.0.0.1:0", tokens = { operate = { joe = TOKEN } } } }
    local both <close> = fanned.start(server, 2, { scripts = scripts, config = config })
    local a, b = table.unpack(both)
    local boss, guest = { token = "boss" }, { token = "guest" }
    local bosses = { fanned.session(a, boss), fanned.session(b, boss), fanned.listener(b, boss) }
    local guests = { fanned.session(a, guest), fanned.session(b, guest), fanned.listener(b, guest) }
    local function told(bosses_lists, guests_lists)
      for i, lists in ipairs { bosses_lists, guests_lists } do
        for _, each in ipairs(({ bosses, guests })[i]) do assert.same(lists, fanned.told(each), fanned.losses(a, b)) end
      end
    end
    write(a, "scripts/tools/more.lua", 'return tool { "More.", scopes = { "ops" }, function() return "more" end }')
    fanned.wait_count(bosses, "tools", 1)
    local switched, _, why = gateway.exec({ "switch", "--admin", "127.0.0.1:" .. a.admin_port, "off", "tool", "secret" },
      { env = { MOONPOOL_ADMIN_TOKEN = TOKEN } })
    assert.equal(0, switched, why)
    fanned.wait_count(bosses, "tools", 2)
    write(a, "scripts/prompts/hello.lua", 'return prompt { "Hello again.", "hello" }')
    fanned.wait_count(bosses, "prompts", 1)
    fanned.wait_count(guests, "prompts", 1)
    fanned.wait_reloaded(server, 2)
    fanned.fence(table.move(guests, 1, 3, 4, table.move(bosses, 1, 3, 1, {})))
    told(fanned.notes(6, { "prompts", "tools", "tools" }), fanned.notes(6, { "prompts" }))
    fanned.close(table.unpack(bosses))
    fanned.close(table.unpack(guests))
    assert_at_rest(a, b)
  end)

  it_real("notify clients once more when all nodes serve the changed list", function()
    local server <close> = redis.start()
    local both <close> = fanned.start(server, 2)
    local a, b = table.unpack(both)
    local all = { fanned.session(a), fanned.session(b), fanned.listener(a), fanned.listener(b) }
    local text = 'return tool { "New.", function() return "new" end }'
    write(a, "scripts/tools/new.lua", text)
    fanned.wait_count(all, "tools", 1)
    wait.quietly(1.3)                                              -- each node knows that they differ
    for _, each in ipairs(all) do assert.same({ "tools" }, fanned.told(each)) end
    write(b, "scripts/tools/new.lua", text)
    fanned.wait_count(all, "tools", 3)
    wait.quietly(1.3)
    for _, each in ipairs(all) do assert.same({ "tools", "tools", "tools" }, fanned.told(each)) end
    fanned.close(table.unpack(all))
    assert_at_rest(a, b)
  end)

  it_real("tell clients that there may have been changes after messages were lost, once, and not after a loss of nothing", function()
    local server <close> = redis.start()
    local between <close> = proxy.start(server.port)
    local a <close> = fanned.node(server.at)
    local b <close> = fanned.node("127.0.0.1:" .. between.port)
    fanned.wait_listeners(server, 2)
    fanned.settle(b)
    local there, mine, other = fanned.session(a), fanned.session(b), fanned.listener(b)
    local all = { mine, other }
    fanned.update(there)
    fanned.wait_count(all, "note://one", 1)
    for _ = 1, 3 do                                                -- nothing is published meanwhile
      assert.equal("2", server:cli("CLIENT", "KILL", "TYPE", "pubsub"))
      fanned.wait_listeners(server, 2)
    end
    wait.quietly(2)
    for _, each in ipairs(all) do assert.same({ "note://one" }, fanned.told(each)) end
    between:mute_subscriptions()                                   -- a silent network: the connection stays open
    fanned.update(there)
    fanned.wait_count(all, "tools", 1)
    wait.quietly(1.5)
    for _, each in ipairs(all) do assert.same({ "note://one", "note://one", "prompts", "resources", "tools" }, fanned.told(each)) end
    assert.same({ 0, 1 }, { fanned.gaps(a), fanned.gaps(b) })
    assert.equal(2, fanned.count(there, "note://one"))
    fanned.update(there)
    fanned.wait_count(all, "note://one", 3)
    wait.quietly(1)
    assert.equal(1, fanned.gaps(b))
    fanned.close(there, mine, other)
    a:stop()
    b:stop()
  end)

  it_real("go on with their own clients while the server stands still, is gone or is emptied, and then with all", function()
    local server <close> = redis.start()
    local both <close> = fanned.start(server, 2)
    local a, b = table.unpack(both)
    local mine, other = fanned.session(a), fanned.session(b)
    server:kill "sigstop"
    for i = 1, 3 do
      fanned.update(mine)
      fanned.wait_count({ mine }, "note://one", i)
    end
    wait.quietly(2.5)
    server:kill "sigcont"
    fanned.wait_count({ other }, "note://one", 1)
    wait.for_fact("a publication of after that", 20, function()
      local before = fanned.count(other, "note://one")
      fanned.update(mine)
      wait.quietly(0.5)
      return fanned.count(other, "note://one") == before + 1
    end)
    wait.quietly(1.5)
    local before, count = fanned.told(other), fanned.count(other, "note://one")
    server:cli "FLUSHALL"
    fanned.update(mine)
    fanned.wait_count({ other }, "note://one", count + 1)
    wait.quietly(1.5)
    assert.equal(#before + 1, #fanned.told(other), fanned.losses(a, b))
    server:stop()
    fanned.update(mine)
    wait.quietly(1)
    server:begin()
    fanned.wait_count({ other }, "note://one", count + 2)
    fanned.close(mine, other)
    assert_at_rest(a, b)
  end)

  it_real("follow the primary that the sentinels name", function()
    local servers <close> = redis.guarded()
    local one, two, sentinels = servers.primary, servers.replica, servers.sentinels
    local a <close> = fanned.node("redis://main", { redis = { sentinels = sentinels } })
    local b <close> = fanned.node("redis://main", { redis = { sentinels = sentinels } })
    fanned.wait_listeners(one, 2)
    local mine, other = fanned.session(a), fanned.session(b)
    fanned.update(mine)
    fanned.wait_count({ mine, other }, "note://one", 1)
    one:kill()
    fanned.wait_listeners(two, 2)
    local before = fanned.count(other, "note://one")
    fanned.update(mine)
    fanned.wait_count({ other }, "note://one", before + 1)
    fanned.close(mine, other)
    for _, guard in ipairs(servers.guards) do guard:__close() end
    a:stop()
    b:stop()
  end)

  it_real("send a flood at a bounded rate, keep a bounded part of it, and tell of the rest as of a loss", function()
    local server <close> = redis.start()
    local both <close> = fanned.start(server, 2)
    local a, b = table.unpack(both)
    local mine, other = fanned.session(a), fanned.session(b)
    local part = 0
    repeat                                                         -- a busy machine sends them as fast as they come at first
      assert.is_true(code.run(mine, ("for i = 1, 1000 do resource_updated('notes://' .. (%d + i)) end return true"):format(part * 1000)))
      part = part + 1
      local status = a:status()
      assert.is_true(status.gauges.fanout_waiting <= 4096 + 100, status.gauges.fanout_waiting)
    until status.counters.dropped.fanout > 1000 or part == 60
    fanned.wait_count({ other }, "note://one", 1)
    wait.for_fact("the flood to be sent", 30, function() return a:status().gauges.fanout_waiting == 0 end)
    assert.is_true(a:status().counters.dropped.fanout > 1000)
    assert.is_true(fanned.gaps(b) >= 1)
    wait.quietly(1.5)
    local before = fanned.count(other, "note://one")
    fanned.update(mine)
    fanned.wait_count({ other }, "note://one", before + 1)
    fanned.close(mine, other)
    assert_at_rest(a, b)
  end)

  it_real("say once what the user's ACL lacks for messages of others, and have them once it has that", function()
    local without = {}
    for _, word in ipairs(nodes.acl_args) do without[#without + 1] = word ~= "&mp:spec:*" and word or nil end
    local server <close> = redis.start { args = without }
    server:cli("ACL", "SETUSER", "other", "on", "nopass", "~*", "&*", "+@all")
    local options = { redis = { password = "pass" }, constants = { redis_refused_ms = 500 } }
    local a <close> = fanned.node("redis://moonpool@" .. server.at, options)
    local b <close> = fanned.node("redis://other@" .. server.at, { redis = { password = "any" } })
    local line = a:wait_log("redis subscription refused", { why = "NOPERM", channel = "mp:spec:f" })
    assert.matches("needs %+subscribe", line.fields.hint)
    server:cli("ACL", "SETUSER", "moonpool", "+publish", "&mp:spec:f")      -- only now PUBLISH is possible
    server:cli("ACL", "SETUSER", "moonpool", "-subscribe")
    wait.quietly(2.5)
    for _, text in ipairs { "redis subscription refused", "subscription made again" } do
      assert.is_true(select(2, a:log():gsub(text, "")) <= 1, a:log())
    end
    local mine, other = fanned.session(a), fanned.session(b)
    server:cli("ACL", "SETUSER", "moonpool", "+subscribe")
    fanned.wait_listeners(server, 2)
    fanned.update(other)
    fanned.wait_count({ mine }, "note://one", 1)
    fanned.close(mine, other)
    for _, g in ipairs { a, b } do g:stop() end
  end)

  it_real("do not understand messages of a newer format, which is logged once, nor other bytes", function()
    local server <close> = redis.start()
    local alone <close> = fanned.start(server, 1)
    local a = alone[1]
    local mine = fanned.session(a)
    for _ = 1, 3 do server:cli("PUBLISH", "mp:spec:f", "2 " .. ("a"):rep(32) .. " 1 resource\nnote://one") end
    for _, text in ipairs {
      "", "1", "1 x y z", "1 abc 99999999999999999999 beat\n", "1 abc 1 unknown\nbody", "1 abc 2 resource\nno uri", "1 abc 3 list\n{}", "1 abc 4 list\nno",
    } do
      server:cli("PUBLISH", "mp:spec:f", text)
    end
    server:cli("PUBLISH", "mp:spec:f", "1 " .. ("b"):rep(32) .. " 1 resource\nnote://one")
    fanned.wait_count({ mine }, "note://one", 1)
    assert.same({ "note://one" }, fanned.told(mine))
    assert.equal(1, select(2, a:log():gsub("messages of a newer node are not understood", "")))
    fanned.close(mine)
    assert_at_rest(a)
  end)

  it_real("with several processes after an upgrade send and receive as one", function()
    local server <close> = redis.start()
    local options = fanned.options {}
    options.scripts["tools/code.lua"] = code.script
    options.config = { cluster = { name = "spec", redis = "redis://" .. server.at }, seal_keys = { nodes.SEAL } }
    options.workers = 2
    local a <close> = upgrading.start_quick(options)
    local b <close> = fanned.node(server.at)
    fanned.wait_listeners(server, 2)
    local old, other = fanned.session(a), fanned.session(b)
    a:must_upgrade_by_signal()
    local new = fanned.session(a)
    fanned.wait_listeners(server, 2)
    wait.quietly(1)                                                -- each knows the numbers of the other
    local all = { old, new, other }
    for i, each in ipairs(all) do
      fanned.update(each)
      fanned.wait_count(all, "note://one", i)
    end
    fanned.fence(all)
    for _, each in ipairs(all) do assert.same(fanned.notes(6), fanned.told(each)) end
    fanned.close(old, new, other)
    b:stop()
  end)

  it_real("tell clients of before that there may have been changes where the server was away at the start", function()
    local server <close> = redis.start()
    server:stop()
    local a <close> = fanned.node(server.at)
    local mine = fanned.session(a)
    wait.quietly(2)
    server:begin()
    fanned.wait_count({ mine }, "tools", 1)
    wait.quietly(1)
    assert.same({ "note://one", "prompts", "resources", "tools" }, fanned.told(mine))
    fanned.close(mine)
    a:stop()
  end)
end)
