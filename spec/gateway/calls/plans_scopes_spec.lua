-- Planned calls of tools that require scopes, and calls in sessions where something is private: C compares bit sets
-- that the general path has made once for each principal and snapshot of the registry. Each call is sent to two
-- gateways, with plans and without; the answers are the same.
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local auth = [[return auth { implies = { admin = { "orders:*" } }, function(request)
  local scopes = { ann = { "a" }, bob = { "b", "orders:*" }, cy = { "a", "b" }, all = { "*" }, dan = { "admin" }, eve = {} }
  local name = try(request.bearer, "no token"):match "^%l+"
  if not scopes[name] then fail "unknown" end
  return { id = "user:" .. name, scopes = scopes[name] }
end }]]

local function tool(name, options)
  return ('return tool { "T.", %s, input = { n = t.integer { default = 0 } }, function(args) return "%s " .. args.n end }'):format(options, name)
end

local scripts = {
  ["auth/a.lua"] = auth,
  ["tools/open.lua"] = tool("open", "enabled = true"), ["tools/a.lua"] = tool("a", 'scopes = { "a" }'), ["tools/b.lua"] = tool("b", 'scopes = { "b" }'),
  ["tools/both.lua"] = tool("both", 'scopes = { "a", "b" }'),
  ["tools/orders.lua"] = tool("orders", 'scopes = { "orders:read" }'),
  ["tools/seen.lua"] = tool("seen", "visible = function(p) return p.id == 'user:ann' end"),
}

local function planned(g) return g:status().counters.calls_planned end

-- The status and body of a call with a token, on a connection of its own.
local function send(g, token, name, arguments)
  local c <close> = g:connect()
  local response = c:request { method = "POST", path = "/mcp", headers = {
    Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
    ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name, Authorization = token and "Bearer " .. token or nil,
  }, body = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":'
    .. '"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'):format(name, arguments or "{}") }
  return response.status .. " " .. (response.headers["www-authenticate"] or "") .. " " .. response.body
end

-- The tools that each principal may use.
local may = {
  ann = { a = true }, bob = { b = true, orders = true }, cy = { a = true, b = true, both = true }, eve = {}, dan = { orders = true },
  all = { a = true, b = true, both = true, orders = true },
}

local function start(mode, more)
  local made = {}
  for path, text in pairs(scripts) do made[path] = text end
  for path, text in pairs(more or {}) do made[path] = text end
  return gateway.start { workers = 1, scripts = made, env = { MOONPOOL_PLANS = mode }, config = { scripts = { watch = "false" } } }
end

describe("plans of tools with scopes", function()
  local with, without

  lazy_setup(function() with, without = start "both", start "off" end)
  lazy_teardown(function()
    with:stop()
    without:stop()
  end)

  it("serve the principals that hold them, after the general path has served their first call of a tool with scopes", function()
    for _, round in ipairs { "first", "second", "third" } do
      for name, allowed in pairs(may) do
        for _, which in ipairs { "a", "open", "b", "both", "orders", "seen" } do
          local before = planned(with)
          assert.equal(send(without, name, which, '{"n":2}'), send(with, name, which, '{"n":2}'), name .. " " .. which)
          local is_planned = which == "open" or (allowed[which] and (round ~= "first" or which ~= "a"))
          assert.equal(before + (is_planned and 1 or 0), planned(with), round .. " " .. name .. " " .. which)
        end
      end
    end
    assert.equal(send(without, nil, "a"), send(with, nil, "a"))
    assert.equal(send(without, "mallory", "a"), send(with, "mallory", "a"))
  end)

  it("serve sessions, whose subscriptions are those of the latest token", function()
    for _, revision in ipairs { "2024-11-05", "2025-03-26", "2025-11-25" } do
      local me <close> = with:client(revision, { token = "ann" })
      local other <close> = without:client(revision, { token = "ann" })
      local before = planned(with)
      for _, which in ipairs { "open", "a", "seen", "b" } do
        assert.same(other:call("tools/call", { name = which }), me:call("tools/call", { name = which }))
      end
      assert.equal(before + 2, planned(with), revision)
      if me.session then me:delete() end
    end
    with:wait_status(function(status) return status.gauges.tasks == 0 end)
  end)

  it("are made anew by a reload, with the scopes of the new scripts", function()
    local g <close> = start "both"
    local function text(name, which) return send(g, name, which) end
    for _ = 1, 2 do assert.truthy(text("ann", "a"):find '"a 0"') end
    local before = planned(g)
    local file <close> = assert(io.open(g.dir .. "/scripts/tools/a.lua", "wb"))
    file:write(tool("new", 'scopes = { "b" }'))
    file:close()
    assert.equal(200, g:admin("/reload", "POST").status)
    for _ = 1, 2 do assert.truthy(text("ann", "a"):find "unknown tool 'a'") end
    for _ = 1, 2 do assert.truthy(text("bob", "a"):find '"new 0"') end
    assert.equal(before + 1, planned(g))
  end)
end)

describe("a principal's rights", function()
  it("are asked for again when a switch changes what is served", function()
    local g <close> = start("both", {
      ["tools/off.lua"] = 'return tool { "Off.", function() disable("tool", "b") end }',
      ["tools/on.lua"] = 'return tool { "On.", function() enable("tool", "b") end }',
    })
    for _ = 1, 3 do
      send(g, "cy", "a")
      local before = planned(g)
      assert.truthy(send(g, "cy", "b"):find '"b 0"')
      assert.equal(before + 1, planned(g))
      send(g, "cy", "off")
      before = planned(g)
      assert.truthy(send(g, "cy", "b"):find "unknown tool")
      assert.truthy(send(g, "cy", "a"):find '"a 0"')
      assert.equal(before + 1, planned(g))
      send(g, "cy", "on")
    end
  end)

  it("are those of each request: a refreshed token moves the subscriptions of its session", function()
    local g <close> = gateway.start { workers = 1, config = { scripts = { watch = "false" } }, env = { MOONPOOL_PLANS = "both" }, scripts = {
      ["auth/a.lua"] = [[return auth { function(request)
        local name, scope = try(request.bearer, "no token"):match "^(%l+)%-?(%l*)$"
        return { id = "user:" .. name, scopes = scope ~= "" and { scope } or {} }
      end }]],
      ["tools/open.lua"] = tool("open", "enabled = true"), ["tools/a.lua"] = tool("a", 'scopes = { "a" }'),
      ["tools/touch.lua"] = 'return tool { "Touch.", input = { uri = t.string }, function(args) resource_updated(args.uri) return "touched" end }',
      ["resources/one.lua"] = 'return resource { "One.", uri = "memo://one", scopes = { "a" }, function() return "one" end }',
      ["resources/two.lua"] = 'return resource { "Two.", uri = "memo://two", scopes = { "a" }, function() return "two" end }',
    } }
    local me <close> = g:client("2025-11-25", { token = "ann-a" })
    local stream <close> = me:get_stream().connection
    stream:read_head()
    me:result("resources/subscribe", { uri = "memo://one" })
    me:result("resources/subscribe", { uri = "memo://two" })
    local function as(token)
      me.token = token
      local before = planned(g)
      -- the first call may take the general path, by which C learns the principal's scopes
      for _ = 1, 2 do me:result("tools/call", { name = "open" }) end
      assert.is_true(planned(g) > before)
    end
    local function updated()
      local list = {}
      for _, message in ipairs(stream:messages()) do
        if message.method == "notifications/resources/updated" then list[#list + 1] = message.params.uri end
      end
      return list
    end
    as "ann-a"
    as "ann"
    assert.truthy(send(g, "eve", "touch", '{"uri":"memo://one"}'):find "touched")
    as "ann-a"
    assert.truthy(send(g, "eve", "touch", '{"uri":"memo://two"}'):find "touched")
    wait.for_fact("a notification", 20, function() return #updated() > 0 end)
    assert.same({ "memo://two" }, updated())
    me:delete()
  end)
end)
