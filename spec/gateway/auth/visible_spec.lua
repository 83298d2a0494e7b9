-- `visible`: a function that decides which principals see a thing. It is called each time, may not wait, and hides the
-- thing if it fails.
local scoped = require "spec.helpers.scoped"
local wait = require "spec.helpers.wait"

local function errors_of(g)
  local found = {}
  for line in g:log():gmatch "[^\n]+" do
    if line:find("visible function failed", 1, true) then found[#found + 1] = line end
  end
  return found
end

local function visible(body) return ('return tool { "V.", visible = function(who) %s end, function() return "here" end }'):format(body) end

describe("visible", function()
  it("hides a thing for which its function fails, and logs the failure once", function()
    local g <close> = scoped.start({
      ["tools/wrong.lua"] = visible "return who.claims.nothing.more", ["tools/waits.lua"] = visible "sleep(1) return true",
      ["tools/fails.lua"] = visible "fail 'not today'", ["tools/changes.lua"] = visible "who.id = 'root' return true",
      ["tools/endless.lua"] = visible "while true do end",
    }, { workers = 1 })
    local me = g:client("2026-07-28", { token = "ann" })
    local began = os.clock()
    for _ = 1, 3 do
      assert.equal("open orders_drop orders_flip orders_sell orders_touch", scoped.names(me))
      for _, name in ipairs { "wrong", "waits", "fails", "changes", "endless" } do
        assert.equal("unknown tool '" .. name .. "'", me:call("tools/call", { name = name }).error.message)
      end
    end
    assert.is_true(os.clock() - began < 5)
    local told = table.concat(errors_of(g), "\n")
    assert.equal(5, #errors_of(g), told)
    assert.matches("attempt to index a nil value", told, 1, true)
    assert.matches("not today", told, 1, true)
    assert.matches("a principal cannot be changed", told, 1, true)
    assert.matches("the code runs for too long", told, 1, true)
    assert.matches("scripts/tools/wrong.lua", told, 1, true)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("hides a thing from the notifications of its changes, even if its function fails or waits", function()
    local body = 'if who.id == "eve" then %s return false end return true'
    local bad = { waits = body:format "sleep(1)", endless = body:format "while true do end", asks = body:format 'http.get "http://127.0.0.1:1/"',
      fails = body:format "fail 'no'", runs = body:format 'exec "true"', reads = body:format 'require "none"' }
    local scripts = {}
    for name, text in pairs(bad) do scripts["tools/" .. name .. ".lua"] = visible(text) end
    local g <close> = scoped.start(scripts, { workers = 1, config = { scripts = { allow = { net = "127.0.0.1:1", run = "true" } } } })
    local streams = {}
    for _, token in ipairs { "ann", "eve" } do
      streams[token] = g:client("2026-07-28", { token = token }):open("subscriptions/listen", { notifications = { toolsListChanged = true } })
      streams[token].connection:wait_event "notifications/subscriptions/acknowledged"
    end
    for name, text in pairs(bad) do
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/" .. name .. ".lua", "wb"))
      file:write((visible(text):gsub('"V%."', '"Other."')))
    end
    assert.equal(200, g:admin("/reload", "POST").status)
    streams.ann:wait "notifications/tools/list_changed"
    local root = g:client("2026-07-28", { token = "root.~" })
    for name in pairs(bad) do
      root:result("tools/call", { name = "orders_flip", arguments = { name = name } })
      streams.ann:wait "notifications/tools/list_changed"
    end
    root:close()
    for _, stream in pairs(streams) do stream:close() end
    assert.has_nothing_left(g)
  end)

  it("is called each time: its result is never cached", function()
    local g <close> = scoped.start({
      ["lib/door.lua"] = "return { is_open = false }",
      ["tools/secret.lua"] = [[local door = require "door"
return tool { "S.", visible = function() return door.is_open end, function() return "in" end }]],
      ["tools/door.lua"] = [[local door = require "door"
return tool { "D.", function() door.is_open = not door.is_open return "done" end }]],
    }, { workers = 1 })
    local me = g:client("2025-11-25", { token = "bob" })
    for _ = 1, 2 do
      assert.falsy(scoped.names(me):find("secret", 1, true))
      assert.equal("unknown tool 'secret'", me:call("tools/call", { name = "secret" }).error.message)
      me:result("tools/call", { name = "door" })
      assert.truthy(scoped.names(me):find("secret", 1, true))
      assert.equal("in", me:result("tools/call", { name = "secret" }).content[1].text)
      me:result("tools/call", { name = "door" })
    end
    me:close()
  end)

  it("is asked before a resource update is sent", function()
    local g <close> = scoped.start({
      ["resources/mine.lua"] = 'return resource { "M.", uri = "mine://{who}", visible = function(who) return who.claims.team == "sales" end, "text" }',
    }, { workers = 1 })
    local ann, bob = g:client("2025-11-25", { token = "ann" }), g:client("2025-11-25", { token = "bob" })
    local streams = { ann = ann:get_stream(), bob = bob:get_stream() }
    streams.ann:head()
    streams.bob:head()
    ann:result("resources/subscribe", { uri = "mine://1" })
    ann:result("resources/subscribe", { uri = "page://one" })
    bob:result("resources/subscribe", { uri = "page://one" })
    assert.truthy(bob:call("resources/subscribe", { uri = "mine://1" }).error)
    ann:result("tools/call", { name = "orders_touch", arguments = { uri = "mine://1" } })
    ann:result("tools/call", { name = "orders_touch", arguments = { uri = "page://one" } })
    local function uris(stream)
      local list = {}
      for _, message in ipairs(stream:messages()) do list[#list + 1] = message.params.uri end
      return list
    end
    wait.for_fact("both to be told", 20, function() return #uris(streams.ann) == 2 and #uris(streams.bob) == 1 end)
    assert.same({ "mine://1", "page://one" }, uris(streams.ann))
    assert.same({ "page://one" }, uris(streams.bob))
    ann:result("resources/unsubscribe", { uri = "mine://1" })
    ann:close()
    bob:close()
  end)

  it("and scopes are those of the current token: a session that has fewer now is notified of less", function()
    local g <close> = scoped.start()
    local me, root = g:client("2025-11-25", { token = "me.audit" }), g:client("2026-07-28", { token = "root.~" })
    local stream = me:get_stream()
    stream:head()
    assert.truthy(scoped.names(me):find("orders_audit", 1, true))
    me:result("resources/subscribe", { uri = "ledger://all" })
    me.token = "me"
    me:result "ping"
    root:result("tools/call", { name = "orders_touch", arguments = { uri = "ledger://all" } })
    root:result("tools/call", { name = "orders_flip", arguments = { name = "orders_audit" } })
    root:result("tools/call", { name = "orders_flip", arguments = { name = "open" } })
    stream:wait "notifications/tools/list_changed"
    me.token = "me.audit"
    assert.falsy(scoped.names(me):find("orders_audit", 1, true)) -- `flip` has switched the tool off
    root:result("tools/call", { name = "orders_flip", arguments = { name = "orders_audit" } })
    stream:wait "notifications/tools/list_changed"
    local count = 0
    for _, message in ipairs(stream:messages()) do count = count + (message.method == "notifications/resources/updated" and 10 or 1) end
    assert.equal(2, count)
    me:close()
    root:close()
  end)
end)
