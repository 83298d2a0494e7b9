-- A URI may be spelt in many ways: no spelling avoids a policy, a limit, scopes or `visible`, and all spellings name
-- one resource.
local gateway = require "spec.helpers.gateway"
local scoped = require "spec.helpers.scoped"

local scripts = {
  ["resources/rows.lua"] = [[return resource { "Rows.", uri = "db://{table}/{id}", complete = { id = { "1" } },
    function(vars) return vars.table .. " " .. vars.id end }]],
  ["resources/files.lua"] = [[return resource { "Files.", uri = "files://{+path}", function(vars) return vars.path end }]],
  ["resources/note.lua"] = [[return resource { "Of its own.", uri = "Notes://caf\u{e9}/%7euser", "note" }]],
  ["policy/secret.lua"] = [[return policy { resources = { "db://secret/*", "files://secret/*", "files://a b/*" },
    function(call) fail("refused " .. call.uri) end }]],
  ["policy/few.lua"] = [[return limit { resources = { "DB://f%65w/*" }, rate = 1, per = 1 * hours }]],
  ["tools/touch.lua"] = 'return tool { "Touch.", input = { uri = t.string }, function(args) resource_updated(args.uri) return "told" end }',
}

local function read(c, uri) return c:call("resources/read", { uri = uri }) end

describe("a URI that is spelt differently", function()
  local g, c
  lazy_setup(function()
    g = gateway.start { scripts = scripts, workers = 1 }
    c = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    local _ <close> = g -- luacheck: ignore 211
    c:close()
    assert.has_nothing_left(g)
  end)

  it("meets the policy of its resource", function()
    for _, uri in ipairs {
      "db://secret/1", "db://%73ecret/1", "DB://secret/1", "db://s%65cre%74/%31", "files://%73ecret/x", "files:///secret/x",
      "files://secret//x", "files://a%20b/x",
    } do
      local answer = read(c, uri)
      assert.is_table(answer.error, uri)
      assert.match("refused", answer.error.message, nil, uri)
    end
    assert.equal("refused db://secret/1", read(c, "DB://%73ecret/1").error.message)
    for _, uri in ipairs { "files://./secret/x", "files://secret%2Fx", "files://secret%2fx", "files://a/../secret/x", "files://a/%2E%2e/secret/x" } do
      assert.equal("resource not found", read(c, uri).error.message, uri)
    end
  end)

  it("is sent back as the client spelt it", function()
    local contents = read(c, "db://%70ublic/a%2Fb").result.contents[1]
    assert.equal("public a/b", contents.text)
    assert.equal("db://%70ublic/a%2Fb", contents.uri)
  end)

  it("counts as the same resource", function()
    assert.equal("few 1", read(c, "db://few/1").result.contents[1].text)
    assert.match("too many calls", read(c, "db://f%65w/1").error.message)
  end)

  it("finds a resource whose script spelt its URI differently", function()
    for _, uri in ipairs { "Notes://caf\u{e9}/%7euser", "notes://caf%c3%A9/~user", "NOTES://caf\u{e9}/~user" } do
      assert.equal("note", read(c, uri).result.contents[1].text, uri)
    end
  end)

  it("names the same template to complete", function()
    local params = { ref = { type = "ref/resource", uri = "DB://{table}/{id}" }, argument = { name = "id", value = "" } }
    assert.same({ "1" }, c:call("completion/complete", params).result.completion.values)
  end)

  it("subscribes to the same resource", function()
    local listen = c:open("subscriptions/listen", { notifications = { resourceSubscriptions = { "db://%61/1" } } })
    local told = listen:wait_event "notifications/subscriptions/acknowledged".json.params.notifications
    assert.same({ "db://%61/1" }, told.resourceSubscriptions)
    c:call("tools/call", { name = "touch", arguments = { uri = "DB://a/%31" } })
    listen:wait_event "notifications/resources/updated"
    listen:hang_up()
    local old = g:client "2025-11-25"
    local own = old:get_stream().connection
    own:read_head()
    assert.same({}, old:call("resources/subscribe", { uri = "db://%62/1" }).result)
    old:call("tools/call", { name = "touch", arguments = { uri = "db://b/1" } })
    own:wait_event "notifications/resources/updated"
    assert.same({}, old:call("resources/unsubscribe", { uri = "DB://b/1" }).result)
    old:delete()
    old:close()
  end)
end)

describe("a spelling of a URI that only some principals may read", function()
  local g, c
  lazy_setup(function()
    g = scoped.start({
      ["resources/files.lua"] = [[return resource { "Files.", uri = "files://{+path}", function(vars) return "open " .. vars.path end }]],
      ["resources/one.lua"] = [[return resource { "One.", uri = "files://secret/one", scopes = { "audit" }, "scoped" }]],
      ["resources/kept.lua"] = [[return resource { "Kept.", uri = "files://kept/{+path}", scopes = { "audit" }, function() return "scoped" end }]],
      ["resources/hidden.lua"] = [[return resource { "Hidden.", uri = "files://hidden/{id}", visible = function(who) return who.id == "ann" end,
        function() return "scoped" end }]],
      ["resources/repo.lua"] = [[return resource { "Open.", uri = "gh://{repo}/{id}", function(vars) return "open " .. vars.repo end }]],
      ["resources/repo_kept.lua"] = [[return resource { "Kept.", uri = "gh://repo@kept/{id}", scopes = { "audit" }, function() return "scoped" end }]],
    }, { workers = 1 })
    c = g:client("2026-07-28", { token = "eve" })
  end)
  lazy_teardown(function()
    local _ <close> = g -- luacheck: ignore 211
    c:close()
    assert.has_nothing_left(g)
  end)

  it("does not exist for other principals, and does not match a public resource", function()
    local ann = g:client("2026-07-28", { token = "ann.audit" })
    for _, uri in ipairs {
      "files://%73ecret/one", "FILES://secret/one", "files://%6bept/x", "files://kept//x", "files://a/../kept/x", "files://%68idden/1", "gh://repo%40kept/1",
      "gh://repo%40kept/a%20b", "files://hidden//1",
    } do
      assert.equal("resource not found", read(c, uri).error.message, uri)
      assert.is_nil(c:open("subscriptions/listen", { notifications = { resourceSubscriptions = { uri } } })
        :wait_event "notifications/subscriptions/acknowledged".json.params.notifications.resourceSubscriptions, uri)
    end
    for _, uri in ipairs { "files://%73ecret/one", "files://%6bept/x", "files://%68idden/1" } do
      assert.equal("scoped", read(ann, uri).result.contents[1].text)
    end
    assert.equal("open fine/x", read(c, "files://f%69ne/x").result.contents[1].text)
    ann:close()
  end)
end)
