-- Things that a principal may not see: absent from lists, and by name treated as unknown (B-30, B-37).
local scoped = require "spec.helpers.scoped"
local wait = require "spec.helpers.wait"

describe("scopes and visible", function()
  for _, revision in ipairs(scoped.revisions) do
    it("decide what is listed, at " .. revision, function()
      local g <close> = scoped.start()
      local ann, bob = g:client(revision, { token = "ann.orders_write" }), g:client(revision, { token = "bob" })
      local all = g:client(revision, { token = "root.~" })
      assert.equal("open orders_both orders_drop orders_flip orders_read orders_sell orders_touch orders_write", scoped.names(ann))
      assert.equal("open orders_drop orders_flip orders_touch", scoped.names(bob))
      assert.equal("open orders_audit orders_both orders_drop orders_flip orders_read orders_touch orders_write", scoped.names(all))
      assert.equal("page://one", scoped.names(bob, "resources/list", "resources", "uri"))
      assert.equal("ledger://all page://one", scoped.names(all, "resources/list", "resources", "uri"))
      assert.equal("", scoped.names(bob, "resources/templates/list", "resourceTemplates", "uriTemplate"))
      assert.equal("order://{id}", scoped.names(all, "resources/templates/list", "resourceTemplates", "uriTemplate"))
      assert.equal("hello", scoped.names(bob, "prompts/list", "prompts"))
      assert.equal("audit hello", scoped.names(all, "prompts/list", "prompts"))
      for _, me in ipairs { ann, bob, all } do
        if me.delete then me:delete() end
        me:close()
      end
      assert.has_nothing_left(g)
    end)

    it("refuse by name as an unknown name is refused, at " .. revision .. " (B-37)", function()
      local g <close> = scoped.start()
      local me, can = g:client(revision, { token = "bob" }), g:client(revision, { token = "root.audit" })
      local function same(method, hidden, unknown)
        local real, response = me:call(method, hidden)
        local none, other = me:call(method, unknown)
        local name, shown = hidden.name or hidden.uri or hidden.ref.name or hidden.ref.uri, unknown.name or unknown.uri or unknown.ref.name or unknown.ref.uri
        assert.equal(none.error.code, real.error.code, method)
        assert.equal((none.error.message:gsub(shown, "X", 1, true)), (real.error.message:gsub(name, "X", 1, true)))
        assert.equal(other.status, response.status)
        assert.is_nil(response.headers["www-authenticate"])
        local answer = can:call(method, hidden)
        assert.truthy(answer.result, method)
      end
      same("tools/call", { name = "orders_audit" }, { name = "xyzzy_plugh1" })
      same("prompts/get", { name = "audit", arguments = { year = "1" } }, { name = "xyzzy", arguments = { year = "1" } })
      same("resources/read", { uri = "ledger://all" }, { uri = "xedger://all" })
      same("resources/read", { uri = "order://1" }, { uri = "xrder://1" })
      local argument = { name = "year", value = "20" }
      same("completion/complete", { ref = { type = "ref/prompt", name = "audit" }, argument = argument },
        { ref = { type = "ref/prompt", name = "xyzzy" }, argument = argument })
      argument = { name = "id", value = "o" }
      same("completion/complete", { ref = { type = "ref/resource", uri = "order://{id}" }, argument = argument },
        { ref = { type = "ref/resource", uri = "xrder://{id}" }, argument = argument })
      if revision ~= "2026-07-28" then
        same("resources/subscribe", { uri = "ledger://all" }, { uri = "xedger://all" })
        for _, uri in ipairs { "ledger://all", "xedger://all" } do assert.same({}, me:result("resources/unsubscribe", { uri = uri })) end
      end
      local hidden = me:call("tools/call", { name = "orders_sell" })
      assert.equal("unknown tool 'orders_sell'", hidden.error.message)
      me:close()
      can:close()
    end)
  end

  it("name no hidden thing in hints", function()
    local g <close> = scoped.start()
    local me, can = g:client("2026-07-28", { token = "bob" }), g:client("2026-07-28", { token = "root.~" })
    assert.equal("unknown tool 'orders_audits'", me:call("tools/call", { name = "orders_audits" }).error.message)
    assert.matches("did you mean 'orders_audit'", can:call("tools/call", { name = "orders_audits" }).error.message)
    assert.equal("unknown prompt 'audi'", me:call("prompts/get", { name = "audi" }).error.message)
    assert.matches("did you mean 'audit'", can:call("prompts/get", { name = "audi" }).error.message)
  end)

  it("make what depends on the principal private, and nothing else (Q-1)", function()
    local g <close> = scoped.start()
    local me = g:client("2026-07-28", { token = "bob" })
    for method, scope in pairs {
      ["tools/list"] = "private", ["prompts/list"] = "private", ["resources/list"] = "private", ["resources/templates/list"] = "private",
      ["server/discover"] = "public",
    } do
      assert.equal(scope, me:result(method).cacheScope, method)
    end
    assert.equal("public", me:result("resources/read", { uri = "page://one" }).cacheScope)
    me:close()
    local other <close> = scoped.start({ ["prompts/audit.lua"] = false, ["resources/ledger.lua"] = false })
    local you = other:client("2026-07-28", { token = "bob" })
    assert.equal("public", you:result("prompts/list").cacheScope)
    assert.equal("public", you:result("resources/list").cacheScope)
    assert.equal("private", you:result("resources/templates/list").cacheScope)
    assert.equal("private", you:result("tools/list").cacheScope)
  end)

  it("allow everything to the user that runs the gateway", function()
    local g <close> = scoped.start()
    local code, out = require "spec.helpers.gateway".exec({ "call", "-c", "moonpool.yaml", "orders_audit" }, { cwd = g.dir })
    assert.equal(0, code)
    assert.equal("audited\n", out)
  end)
end)

describe("a subscriber with scopes", function()
  local function listen(g, token, filter)
    local me = g:client("2026-07-28", { token = token })
    local stream = me:open("subscriptions/listen", { notifications = filter })
    local ack = stream.connection:wait_event "notifications/subscriptions/acknowledged"
    return stream, ack.json.params.notifications
  end

  it("is notified of the lists that change for its principal, and of no others (B-89)", function()
    local g <close> = scoped.start()
    local all = g:client("2026-07-28", { token = "root.~" })
    local sessions, streams = {}, {}
    for _, token in ipairs { "root.audit", "bob" } do
      local me = g:client("2025-11-25", { token = token })
      sessions[token] = me
      streams[token] = me:get_stream()
      streams[token]:head()
      streams[token .. " listens"] = listen(g, token, { toolsListChanged = true })
    end
    local function heard()
      local count = {}
      for who, stream in pairs(streams) do
        count[who] = 0
        for _, message in ipairs(stream:messages()) do
          if message.method == "notifications/tools/list_changed" then count[who] = count[who] + 1 end
        end
      end
      return count
    end
    local function expect(audit, others)
      local wanted = { ["root.audit"] = audit, ["root.audit listens"] = audit, bob = others, ["bob listens"] = others }
      wait.for_fact("who sees it to be told", 20, function()
        local count = heard()
        return count["root.audit"] >= audit and count["root.audit listens"] >= audit and count.bob >= others and count["bob listens"] >= others
      end)
      assert.same(wanted, heard())
    end
    all:result("tools/call", { name = "orders_flip", arguments = { name = "orders_audit" } })
    expect(1, 0)
    all:result("tools/call", { name = "orders_flip", arguments = { name = "open" } })
    expect(2, 1)
    local function write(path, text)
      local file <close> = assert(io.open(g.dir .. "/scripts/" .. path, "wb"))
      file:write(text)
    end
    write("tools/vault.lua", 'return tool { "Vault.", scopes = { "audit" }, function() end }')
    write("tools/open.lua", 'return tool { "Open to all.", function() return "other code" end }')
    assert.equal(200, g:admin("/reload", "POST").status)
    expect(3, 1)
    write("tools/vault.lua", 'return tool { "Vault.", function() end }')
    assert.equal(200, g:admin("/reload", "POST").status)
    expect(3, 2)
    for _, stream in pairs(streams) do stream:close() end
    for _, me in pairs(sessions) do me:close() end
    all:close()
  end)

  it("is not notified of a resource that is hidden from its principal", function()
    local g <close> = scoped.start()
    local all = g:client("2026-07-28", { token = "root.~" })
    local seen, told = listen(g, "root.audit", { resourceSubscriptions = { "order://1", "page://one", "ledger://all" } })
    local blind, none = listen(g, "bob", { resourceSubscriptions = { "order://1", "page://one", "ledger://all" } })
    assert.same({ "order://1", "page://one", "ledger://all" }, told.resourceSubscriptions)
    assert.same({ "page://one" }, none.resourceSubscriptions)
    for _, uri in ipairs { "order://1", "ledger://all", "page://one" } do
      all:result("tools/call", { name = "orders_touch", arguments = { uri = uri } })
    end
    local function uris(stream)
      local list = {}
      for _, message in ipairs(stream:messages()) do
        if message.method == "notifications/resources/updated" then list[#list + 1] = message.params.uri end
      end
      table.sort(list)
      return list
    end
    wait.for_fact("them to be told", 20, function() return #uris(seen) == 3 and #uris(blind) == 1 end)
    assert.same({ "ledger://all", "order://1", "page://one" }, uris(seen))
    assert.same({ "page://one" }, uris(blind))
    seen:close()
    blind:close()
    all:close()
  end)
end)

describe("another's token", function()
  it("reads no cursor (B-30)", function()
    local many = {}
    for i = 1, 101 do many[#many + 1] = ("n%03d = tool { \"N.\", scopes = { \"orders:read\" }, function() end }"):format(i) end
    local g <close> = scoped.start({ ["tools/many.lua"] = "return {" .. table.concat(many, ",") .. "}" }, { config = { limits = { page = "4KiB" } } })
    for _, revision in ipairs { "2025-11-25", "2026-07-28" } do
      local ann, eve = g:client(revision, { token = "ann.orders_read" }), g:client(revision, { token = "eve.orders_read" })
      local first = ann:result "tools/list"
      assert.truthy(ann:result("tools/list", { cursor = first.nextCursor }).tools[1])
      local foreign, random = eve:call("tools/list", { cursor = first.nextCursor }), eve:call("tools/list", { cursor = ("A"):rep(60) })
      assert.same(random.error, foreign.error)
      ann:close()
      eve:close()
    end
  end)
end)
