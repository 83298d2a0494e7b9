-- Scripts cannot change values of the gateway: neither by assignment nor by the raw functions, the table library,
-- metatables, iterators, coroutines or closers. The result of one script's attempts is checked from other scripts, and
-- in later calls.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"

-- attack(value): tries to change a value and everything reachable from it; returns the number of tables. collect(value)
-- returns all tables that can be reached: by pairs, by the state of the iterator that pairs returns, by next, by
-- metatables, by index.
local attacker = [[
local function reach(root)
  local seen, list = {}, {}
  local function add(value)
    if type(value) == "table" and not seen[value] then seen[value] = true list[#list + 1] = value end
  end
  add(root)
  local at = 1
  while list[at] and at < 20000 do
    local it = list[at]
    pcall(function()
      local iterator, state, first = pairs(it)
      add(state) add(first)
      for name, value in iterator, state, first do add(name) add(value) end
    end)
    pcall(function() for name, value in next, it do add(name) add(value) end end)
    pcall(function() for _, value in ipairs(it) do add(value) end end)
    pcall(function() add(getmetatable(it)) end)
    for _, name in ipairs { "__index", "__newindex", "__frozen", "kind", "content", "spec", "error", "why", "questions", "handler", "args",
      "claims", "scopes" } do
      pcall(function() add(it[name]) end)
      pcall(function() add(rawget(it, name)) end)
    end
    at = at + 1
  end
  return list
end

local function change(it, names)
  local tries = {
    function() it.tainted = true end,
    function() rawset(it, "tainted", true) end,
    function() rawset(it, 1, "tainted") end,
    function() it[1] = "tainted" end,
    function() table.insert(it, "tainted") end,
    function() table.insert(it, 1, "tainted") end,
    function() table.remove(it) end,
    function() table.move({ "tainted" }, 1, 1, 1, it) end,
    function() table.sort(it, function() return true end) end,
    function() setmetatable(it, { __index = function() return "tainted" end }) end,
    function() setmetatable(it, nil) end,
    function() json.array(it) end,
    function() json.object(it) end,
    function() setmetatable(it, json.array_mt) end,
    function() load("tainted = true", "x", "t", it)() end,
    function() coroutine.wrap(function() it.tainted = true end)() end,
    function() local _ <close> = closing(function() it.tainted = true end) end,
    function() string.gsub("x", "x", it) end,
  }
  for _, one in ipairs(tries) do pcall(one) end
  for _, name in ipairs(names) do
    pcall(function() it[name] = "tainted" end)
    pcall(rawset, it, name, "tainted")
    pcall(function() it[name] = nil end)
  end
end

local NAMES = { "id", "scopes", "claims", "team", "groups", "why", "error", "where", "what", "hint", "spec", "kind", "stamp", "options",
  "method", "params", "needs", "read", "name", "uri", "__index", "__tostring", "__metatable", "__name", "principal", "capabilities",
  "elicitation", "form", "version", "verify", "test", "mine" }

local function attack(root)
  local list = reach(root)
  for _, it in ipairs(list) do change(it, NAMES) end
  return #list
end
]]

local auth = [[
local people = { ann = { id = "ann", scopes = { "read" }, claims = { team = "web", groups = { "a", "b" } } } }
return auth { function(request)
  return people[request.bearer]
end }]]

local looks = [[return tool { "Tells what it sees of its caller.", function(_, call)
  local p = call.principal
  local names = {}
  for name in pairs(p) do names[#names + 1] = name end
  for name in pairs(p.claims) do names[#names + 1] = name end
  table.sort(names)
  return json.encode { p.id, p.scopes, p.claims, tostring(p), table.concat(names, " "), #p.claims.groups, json.encode(p),
    call.client or "none", call.meta or "none", type(p) }
end }]]

local changes = attacker .. [[
local touch = tool { "Changes its caller.", function(_, call)
  local all = 0
  for _, value in ipairs { call.principal, call.client or {}, call.capabilities or {}, call.meta or {} } do all = all + attack(value) end
  pcall(function() call.principal = "tainted" end)
  pcall(rawset, call, "principal", "tainted")
  pcall(function() call.client = nil end)
  return all
end }
return touch]]

describe("a caller", function()
  local g, c
  setup(function()
    g = gateway.start { workers = 1, scripts = {
      ["auth/people.lua"] = auth, ["tools/looks.lua"] = looks, ["tools/changes.lua"] = changes,
      ["tools/same.lua"] = attacker .. [[return tool { "Changes, then looks.", function(_, call)
        attack(call.principal) attack(call.client) attack(call.meta) attack(call.capabilities)
        return json.encode { call.principal, call.client, call.meta, call.capabilities }
      end }]],
      ["tools/hidden.lua"] = [[return tool { "Hidden.", visible = function(p) return p.id == "tainted" or p.claims.team == "tainted" end,
        function() return "seen" end }]],
    } }
    c = g:client("2026-07-28", { token = "ann" })
  end)
  teardown(function() g:stop() end)

  local function text(name, more)
    local params = { name = name }
    for key, value in pairs(more or {}) do params[key] = value end
    local result = c:result("tools/call", params)
    assert.is_falsy(result.isError, result.content[1] and result.content[1].text)
    return result.content[1].text
  end

  it("is unchanged in the next call after a tool has written to call.principal, call.client, call.meta", function()
    local before = text "looks"
    assert.match('"ann"', before, 1, true)
    assert.match('"claims groups id scopes team"', before, 1, true)
    for _ = 1, 3 do
      assert.is_true(tonumber((text "changes")) >= 4)
      assert.equal(before, text "looks")
    end
    assert.equal("unknown tool 'hidden'", (c:call("tools/call", { name = "hidden" }).error.message:gsub(":.*", "")))
  end)

  it("is the same within the call", function()
    local told = cjson.decode(text("same", { _meta = { ["io.modelcontextprotocol/clientCapabilities"] = { elicitation = { url = { on = true } } },
      mine = { deep = { 1, 2 } } } }))
    assert.same({ id = "ann", scopes = { "read" }, claims = { team = "web", groups = { "a", "b" } } }, told[1])
    assert.is_nil(told[2] and told[2].tainted)
    assert.same({ deep = { 1, 2 } }, told[3].mine)
    assert.is_nil(told[3].tainted)
    assert.is_nil(told[4].tainted)
  end)
end)

describe("what all callers without auth share", function()
  it("cannot be changed by one script for the others", function()
    local g <close> = gateway.start { workers = 1, scripts = {
      ["tools/changes.lua"] = changes,
      ["tools/looks.lua"] = [[return tool { "Looks.", function(_, call) return json.encode { call.principal, tostring(call.principal) } end }]],
    } }
    local one, two = g:client "2026-07-28", g:client "2025-11-25"
    one:result("tools/call", { name = "changes" })
    assert.equal('[{"id":"anonymous","scopes":[]},"anonymous"]', two:result("tools/call", { name = "looks" }).content[1].text)
    one:close()
    two:close()
  end)
end)

describe("the environment of a script", function()
  local g, c
  setup(function()
    g = gateway.start { workers = 1, scripts = {
      ["lib/attack.lua"] = attacker .. "return { attack = attack, reach = reach }",
      ["lib/pool.lua"] = [[
        -- what one script makes with the gateway's functions, and others use
        local pool = {}
        pool.kinds = t.object { name = t.string { max = 3 }, n = t.integer { "A number.", default = 2 } }
        pool.digits = regex.new "^[0-9]+$"
        pool.verifier = jwt.verifier { issuer = false, audience = false, key = require "pem" }
        pool.tool = tool { "Made.", input = { a = t.string }, function(args) return args.a end }
        pool.job = job { "Made.", every = 5, function() end }
        pool.prompt = prompt { "Made.", "text" }
        pool.resource = resource { "Made.", uri = "made://it", "text" }
        pool.policy = policy { function(call, next) return next(call) end }
        pool.limit = limit { rate = 5 }
        pool.question = ask.elicit("Sure?", { ok = t.boolean })
        local _, e = pcall(fail, "the reason")
        pool.expected = e
        _, e = pcall(fail_request, -32602, "wrong params", { at = { 1 } })
        pool.refused = e
        _, e = pcall(sleep, "x")
        _, e = pcall(function() return t.nothing end)
        pool.trouble = e
        return pool]],
      ["lib/pem.lua"] = "return [==[" .. require "spec.helpers.tokens".issuer("ES256", "k1").pem .. "]==]",
      ["tools/early.lua"] = [[local attack = require "attack".attack
        local all = attack(_G)
        for _, name in ipairs { "string", "table", "math", "utf8", "os", "coroutine", "json", "log", "store", "time", "uri", "base64", "regex",
          "digest", "uuid", "t", "ask", "http", "fs", "sqlite", "exec", "jwt", "auth" } do
          local ok, value = pcall(load("return " .. name))
          if ok then all = all + attack(value) end
        end
        local pool = require "pool"
        for _, value in pairs(pool) do all = all + attack(value) end
        for _, value in ipairs { json.array_mt, json.object_mt, t.string, ask.elicit("x", { a = t.string }), json.array {}, json.object {} } do
          all = all + attack(value)
        end
        return tool { "Counts.", function() return all end }]],
      ["tools/tools.lua"] = [[local pool = require "pool"
        local reach = require "attack".reach
        return { probe = tool { "Looks for changes.", function()
          local found = {}
          for _, name in ipairs { "string", "table", "math", "utf8", "os", "coroutine", "json", "log", "store", "time", "uri", "base64", "regex",
            "digest", "uuid", "ask", "http", "fs", "sqlite", "exec", "jwt" } do
            local library = load("return " .. name)()
            if type(library) ~= "table" then library = { library } end
            for key, value in pairs(library) do
              if key == "tainted" or value == "tainted" then found[#found + 1] = name .. "." .. tostring(key) end
            end
            for _, it in ipairs(reach(library)) do
              if rawget(it, "tainted") ~= nil or it[1] == "tainted" then found[#found + 1] = name .. " has a table that was changed" end
            end
          end
          if rawget(_G, "tainted") ~= nil then found[#found + 1] = "a global" end
          return table.concat(found, ", ")
        end },
        made = tool { "Uses what was made.", input = { it = pool.kinds }, function(args) return args.it.n end },
        kept = tool { "Uses the rest.", function()
          local out = { tostring(pool.digits:test "123"), tostring(pool.digits:test "x"), tostring((select(2, pool.verifier:verify "x"))),
            tostring(pool.expected), pool.expected.why, tostring(pool.refused), pool.refused.why, (tostring(pool.trouble):gsub("^.-: ", "")),
            tostring(rawget(pool.tool, "spec")), json.encode(json.array {}), json.encode(json.object {}), tostring(json.array_mt.tainted) }
          return table.concat(out, "|")
        end },
        raises = tool { "Raises what was caught.", function() error(pool.expected) end },
        refuses = tool { "Raises what was caught.", function() error(pool.refused) end },
        asks = tool { "Asks what was made.", function(_, call) return json.encode((call:ask { q = pool.question })) end },
        again = pool.tool }]],
      ["prompts/made.lua"] = "return require 'pool'.prompt",
      ["resources/made.lua"] = "return require 'pool'.resource",
    } }
    c = g:client "2026-07-28"
  end)
  teardown(function()
    c:close()
    g:stop()
  end)

  local function text(name, arguments) return c:result("tools/call", { name = name, arguments = arguments }).content[1].text end

  it("cannot be reached by other scripts", function()
    assert.is_true(tonumber((text "early")) > 40)
    assert.equal("", text "probe")
  end)

  it("has values that serve as they were made", function()
    assert.equal("2", text("made", { it = { name = "abc" } }))
    assert.match("at most 3 characters", text("made", { it = { name = "abcd" } }), 1, true)
    assert.equal("a", text("again", { a = "a" }))
    local kept = text "kept"
    assert.equal("true|false|" .. kept:match "^true|false|([^|]*)|"
      .. "|the reason|the reason|wrong params|wrong params|there is no type t.nothing|nil|[]|{}|nil", kept)
    assert.not_match("tainted", kept, 1, true)
    assert.equal("the reason", text "raises")
    assert.same({ code = -32602, message = "wrong params", data = { at = { 1 } } }, c:call("tools/call", { name = "refuses" }).error)
    local can = { elicitation = { form = { on = true } } }
    local asked = c:result("tools/call", { name = "asks", _meta = { ["io.modelcontextprotocol/clientCapabilities"] = can } })
    assert.equal("input_required", asked.resultType)
    assert.equal("elicitation/create", asked.inputRequests.q.method)
    assert.equal("Sure?", asked.inputRequests.q.params.message)
    assert.equal("text", c:result("prompts/get", { name = "made" }).messages[1].content.text)
    assert.equal("text", c:result("resources/read", { uri = "made://it" }).contents[1].text)
  end)
end)

describe("call of a policy", function()
  it("is not changed by a policy around it, but for its arguments", function()
    local g <close> = gateway.start { workers = 1, scripts = {
      ["policy/a-outer.lua"] = attacker .. [[return policy { order = -1, function(call, next, third)
        if third ~= nil then return "a third parameter" end
        change(call, NAMES) change(call.principal, NAMES)
        return next(call)
      end }]],
      ["policy/b-inner.lua"] = [[return policy { resources = { "orders://eu/*" }, function(call) fail("not " .. call.uri .. " " .. call.kind) end }]],
      ["policy/c-words.lua"] = [[return policy { tools = { "told" }, function(call, next)
        return json.encode { call.name, call.kind, call.principal, next(call) }
      end }]],
      ["resources/order.lua"] = [[return resource { "An order.", uri = "orders://{region}/{id}", function() return "read" end }]],
      ["tools/told.lua"] = [[return tool { "Told.", function() return "done" end }]],
    } }
    local c = g:client "2026-07-28"
    assert.equal("not orders://eu/1 resource", c:call("resources/read", { uri = "orders://eu/1" }).error.message)
    assert.equal("read", c:result("resources/read", { uri = "orders://us/1" }).contents[1].text)
    assert.equal('["told","tool",{"id":"anonymous","scopes":[]},"done"]', c:result("tools/call", { name = "told" }).content[1].text)
    c:close()
  end)
end)
