-- Many things, so that the lists are rebuilt over several time slices while clients read them: each principal sees what
-- it may, and no list is old.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["auth/main.lua"] = [[return auth { function(request)
    local is_boss = try(request.bearer, "no token") == "boss"
    return { id = request.bearer, scopes = is_boss and { "ops" } or {} }
  end }]],
  ["tools/secret.lua"] = [[local all = {}
    for i = 1, 150 do all["n" .. i] = tool { "Secret.", scopes = { "ops" }, function() return "secret" end } end
    return all]],
  ["resources/many.lua"] = [[local all = {}
    for i = 1, 150 do
      all["n" .. i] = resource { "Seen by one.", uri = "x:boss" .. i, "text", visible = function(p)
        local sum = 0
        for k = 1, 200 do sum = sum + k end
        return sum > 0 and p.id == "boss"
      end }
    end
    all.open = resource { "Seen by all.", uri = "x:all", "text" }
    return all]],
}

local common = {
  ["tools/aflips.lua"] = 'return tool { "Is switched.", function() return "here" end }',
  ["tools/zmany.lua"] = [[local all = {}
    for i = 1, 800 do all["n" .. i] = tool { "One of many.", input = { text = t.string, count = t.integer }, function() return "one" end } end
    return all]],
  ["tools/afterwards.lua"] = [[return tool { "Switches to and fro.", input = { ends_on = t.boolean }, function(args)
    for _ = 1, 4 do
      disable("tool", "aflips")
      enable("tool", "aflips")
    end
    if not args.ends_on then disable("tool", "aflips") end
    return "switched"
  end }]],
}

local function started(more)
  local all = {}
  for path, text in pairs(common) do all[path] = text end
  for path, text in pairs(more) do all[path] = text end
  return gateway.start { scripts = all, workers = 1, config = { limits = { call = { cpu = "120s" } } } }
end

local function listed(me, method, member, key)
  local set, count = {}, 0
  for _, entry in ipairs(me:result(method)[member]) do set[entry[key]], count = true, count + 1 end
  return set, count
end

-- Switches tools off and on in `rounds` calls, and meanwhile runs look() again and again. Runs after(is_on) when a call
-- has ended.
local function switch_while(switcher, rounds, look, after)
  for round = 1, rounds do
    local is_on = round % 2 == 0
    local stream = switcher:open("tools/call", { name = "afterwards", arguments = { ends_on = is_on } })
    repeat look() until stream:has_begun()
    assert.equal("switched", stream:answer(60).result.content[1].text)
    stream:close()
    after(is_on)
  end
end

describe("lists of many things that a tool switches to and fro", function()
  it("show each principal what it may see, and the last switch at once", function()
    local g <close> = started(scripts)
    local switcher <close> = g:client("2026-07-28", { token = "boss" })
    local boss <close> = g:client("2026-07-28", { token = "boss" })
    local guest <close> = g:client("2026-07-28", { token = "guest" })
    local looks = 0
    local function look()
      looks = looks + 1
      assert.is_true(listed(boss, "tools/list", "tools", "name").secret_n1)
      assert.is_nil(listed(guest, "tools/list", "tools", "name").secret_n1)
      assert.equal(151, select(2, listed(boss, "resources/list", "resources", "uri")))
      local seen, count = listed(guest, "resources/list", "resources", "uri")
      assert.is_true(seen["x:all"])
      assert.equal(1, count)
    end
    switch_while(switcher, 4, look, function(is_on)
      for _, me in ipairs { boss, guest } do
        assert.equal(is_on or nil, listed(me, "tools/list", "tools", "name").aflips)
        local answer = me:call("tools/call", { name = "aflips" })
        assert.equal(is_on, answer.result ~= nil)
      end
      look()
    end)
    assert.is_true(looks > 4, looks)
    assert.equal(0, g:status().counters.tool_faults)
    assert.is_nil(g:log():find("internal error", 1, true))
  end)

  it("are kept as bytes only as they are", function()
    local g <close> = started {}
    local switcher <close> = g:client "2026-07-28"
    local reader <close> = g:client "2026-07-28"
    local function look() assert.is_true(listed(reader, "tools/list", "tools", "name").afterwards) end
    switch_while(switcher, 4, look, function(is_on)
      for _ = 1, 3 do assert.equal(is_on or nil, listed(reader, "tools/list", "tools", "name").aflips) end
      local answer = reader:call("tools/call", { name = "aflips" })
      assert.equal(is_on, answer.result ~= nil)
    end)
    assert.equal(0, g:status().counters.tool_faults)
    -- with MOONPOOL_PLANS=both, Lua makes each list again
    if not os.getenv "MOONPOOL_PLANS" then assert.is_true(g:status().counters.calls_frozen > 0) end
  end)
end)
