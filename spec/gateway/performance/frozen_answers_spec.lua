-- Lists that are the same for every principal, and resources that are fixed texts, are answered from bytes that C
-- stores: with the bytes that Lua made, and only if Lua has no decision to make. The counter calls_frozen counts these
-- requests.
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"
local scoped = require "spec.helpers.scoped"
local wait = require "spec.helpers.wait"

local STATELESS = "2026-07-28"
local REVISIONS = { STATELESS, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" }
local LEVEL = "io.modelcontextprotocol/logLevel"

local scripts = {
  ["tools/add.lua"] = "--- Add.\n---@param a number\n---@param b number\nreturn function(a, b) return a + b end",
  ["tools/off.lua"] = [[return tool { "Switches add.", function() disable("tool", "add") return "done" end }]],
  ["prompts/ask.lua"] = 'return prompt { "Asks.", function() return "Hello" end }',
  ["resources/fixed.lua"] = 'return resource { "A text.", uri = "text://fixed", mime = "text/plain", "The \\"text\\"." }',
  ["resources/made.lua"] = 'local n = 0 return resource { "Counts.", uri = "text://made", function() n = n + 1 return tostring(n) end }',
  ["resources/order.lua"] = 'return resource { "An order.", uri = "order://{id}", function(vars) return vars.id end }',
}

local function start(more, config, mode)
  local all = {}
  for path, text in pairs(scripts) do all[path] = text end
  for path, text in pairs(more or {}) do all[path] = text or nil end
  return gateway.start { workers = 1, scripts = all, config = config, env = mode and { MOONPOOL_PLANS = mode } }
end

local function frozen(g) return g:status().counters.calls_frozen end

local function changed(g) return g:status().counters.lists_changed end

-- The text of an answer without its id.
local function bytes_of(response)
  return (assert(response.body or response.data):gsub('"id":%d+', '"id":0'))
end

-- Sends a request whose body is exactly `params`, and returns the answer's text.
local function send(me, method, params, name)
  local message = me:message(method, {})
  local headers = me:headers(message)
  headers["Content-Type"] = "application/json"
  if name then headers["Mcp-Name"] = name end
  local body = ('{"jsonrpc":"2.0","id":7,"method":"%s","params":%s}'):format(method, params)
  return me.gateway:connect():request { method = "POST", path = "/mcp", headers = headers, body = body }
end

local META = '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{"listChanged":true}}}'

local plain = {
  { "tools/list", {} }, { "prompts/list", {} }, { "resources/list", {} }, { "resources/templates/list", {} },
  { "resources/read", { uri = "text://fixed" } },
}

describe("a frozen answer", function()
  if os.getenv "MOONPOOL_PLANS" then return end -- MOONPOOL_PLANS turns frozen answers off, or compares both ways

  for _, revision in ipairs(REVISIONS) do
    it("has the bytes that Lua gave for the first request, at " .. revision, function()
      local g <close> = start()
      local me <close> = g:client(revision)
      for _, case in ipairs(plain) do
        local before = frozen(g)
        local first = me:result(case[1], case[2])
        assert.equal(before, frozen(g), case[1])
        assert.same(first, me:result(case[1], case[2]))
        assert.equal(before + 1, frozen(g), case[1])
        if me.post and revision ~= "2024-11-05" then
          local _, one = me:call(case[1], case[2])
          assert.equal(200, one.status)
          assert.equal(bytes_of(one), bytes_of(select(2, me:call(case[1], case[2]))))
        end
      end
    end)
  end

  it("is compared with what Lua gives for the same request, and equal, in each revision", function()
    local g <close> = start(nil, nil, "both")
    for _, revision in ipairs(REVISIONS) do
      local me <close> = g:client(revision)
      for _, case in ipairs(plain) do
        for _ = 1, 2 do me:result(case[1], case[2]) end
      end
    end
    assert.equal(0, frozen(g))
  end)

  it("goes to any plain request: without _meta in a session, with other members of _meta, with white space", function()
    local g <close> = start()
    local session <close> = g:client "2025-11-25"
    local me <close> = g:client(STATELESS)
    session:result("tools/list", {})
    me:result("tools/list", {})
    local before = frozen(g)
    assert.equal(200, send(session, "tools/list", "{}").status)
    assert.equal(200, send(session, "tools/list", '{ "_meta" : { "progressToken" : 7, "a" : [ 1, { "b" : "\\u00e4" } ] } }').status)
    assert.equal(200, send(me, "tools/list", "{" .. META .. "}").status)
    assert.equal(before + 3, frozen(g))
  end)

  local left = {
    { "a cursor", "tools/list", "{" .. META .. ',"cursor":null}', 200 },
    { "a wrong cursor", "tools/list", "{" .. META .. ',"cursor":"x"}', 400, "unknown cursor" },
    { "a level that is none", "tools/list", "{" .. META:gsub("{", '{"' .. LEVEL .. '":"loud",', 1) .. "}", 400, LEVEL },
    { "a repeated key", "tools/list", "{" .. META:gsub('"roots":{', '"roots":{},"roots":{', 1) .. "}", 400, "repeats a key" },
    { "a repeated key in an array", "tools/list", "{" .. META:gsub('{"roots"', '{"a":[{"x":1,"x":1}],"roots"', 1) .. "}", 400, "repeats a key" },
    { "a key with an escape", "tools/list", "{" .. META:gsub('"roots"', '"\\u0072oots":{},"roots"', 1) .. "}", 400, "repeats a key" },
    { "a state of questions", "resources/read", "{" .. META .. ',"uri":"text://fixed","requestState":"x"}', 400, nil, "text://fixed" },
    { "another URI", "resources/read", "{" .. META .. ',"uri":"text://other"}', nil, "resource not found", "text://other" },
    { "another spelling of the URI", "resources/read", "{" .. META .. ',"uri":"TEXT://fixed"}', 200, '"uri":"TEXT://fixed"', "TEXT://fixed" },
    { "a resource that a function makes", "resources/read", "{" .. META .. ',"uri":"text://made"}', 200, '"text":"2"', "text://made" },
  }

  for _, case in ipairs(left) do
    it("is not for " .. case[1], function()
      local g <close> = start()
      local me <close> = g:client(STATELESS)
      for _, one in ipairs(plain) do me:result(one[1], one[2]) end
      me:result("resources/read", { uri = "text://made" })
      local before = frozen(g)
      local response = send(me, case[2], case[3], case[6])
      assert.equal(case[4] or response.status, response.status, response.body)
      assert.truthy(response.body:find(case[5] or "", 1, true), response.body)
      assert.equal(before, frozen(g))
    end)
  end

  it("is not for a session before its initialize", function()
    local g <close> = start()
    local me <close> = g:client "2024-11-05"
    me:result("tools/list", {})
    local connection = g:connect()
    connection:send { method = "GET", path = "/sse", headers = { accept = "text/event-stream" } }
    local path = connection:wait_event "endpoint".data
    g:connect():request { method = "POST", path = path, headers = { ["content-type"] = "application/json" },
      body = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' }
    assert.truthy(connection:wait_event(1).json.error)
    connection:close()
  end)

  it("is gone when a thing is switched off", function()
    local g <close> = start()
    local me <close> = g:client(STATELESS)
    assert.equal(2, #me:result("tools/list", {}).tools)
    assert.equal(2, #me:result("tools/list", {}).tools)
    me:result("tools/call", { name = "off", arguments = {} })
    assert.equal(1, #me:result("tools/list", {}).tools)
    assert.equal(1, #me:result("tools/list", {}).tools)
  end)

  it("is for no list that depends on the principal", function()
    local g <close> = scoped.start { workers = 1 }
    local ann <close> = g:client(STATELESS, { token = "ann.orders_write" })
    local bob <close> = g:client(STATELESS, { token = "bob" })
    local names = scoped.names(ann)
    assert.equal(names, scoped.names(ann))
    assert.are_not.equal(names, scoped.names(bob))
    assert.equal(scoped.names(bob), scoped.names(bob))
    assert.equal(0, frozen(g))
  end)

  it("is for nothing in sessions while anything is private: their subscriptions follow the principal of the latest request", function()
    local g <close> = start { ["tools/secret.lua"] = 'return tool { "Secret.", scopes = { "x" }, function() return "x" end }' }
    local session <close> = g:client "2025-11-25"
    local me <close> = g:client(STATELESS)
    for _ = 1, 2 do session:result("prompts/list", {}) end
    assert.equal(0, frozen(g))
    for _ = 1, 2 do me:result("prompts/list", {}) end
    assert.equal(1, frozen(g))
  end)

  it("is for nothing with an audit that shows values, whose lines Lua writes", function()
    for how, expected in pairs { redacted = 0, full = 0, names = 2, none = 2 } do
      local g <close> = start(nil, { log = { audit = "audit.log", audit_arguments = how } })
      local me <close> = g:client(STATELESS)
      for _ = 1, 3 do me:result("tools/list", {}) end
      assert.equal(expected, frozen(g))
    end
  end)

  it("is for no resource with a policy, and no list that a template's function makes", function()
    local g <close> = start {
      ["policy/count.lua"] = 'return policy { resources = { "text://*" }, function(call, next) return next(call) end }',
      ["resources/order.lua"] = [[return resource { "An order.", uri = "order://{id}", list = function() return { { id = "1" } } end,
        function(vars) return vars.id end }]],
    }
    local me <close> = g:client(STATELESS)
    for _ = 1, 3 do
      me:result("resources/read", { uri = "text://fixed" })
      me:result("resources/list", {})
    end
    assert.equal(0, frozen(g))
  end)

  it("is not kept above limits.call.output", function()
    local long = 'return resource { "Long.", uri = "text://long", ("x"):rep(70000) }'
    local g <close> = start({ ["resources/long.lua"] = long }, { limits = { call = { output = "64KiB" } } })
    local me <close> = g:client(STATELESS)
    for _ = 1, 2 do assert.truthy(me:call("resources/read", { uri = "text://long" }).error) end
    assert.equal(0, frozen(g))
  end)
end)

-- A tool for each of `count` names, so that the list has several pages.
local function many(count)
  local found = {}
  for i = 1, count do found[("tools/t%03d.lua"):format(i)] = ('return tool { "Tool %d.", function() return "x" end }'):format(i) end
  return found
end

-- All pages of the list of tools, as bytes.
local function pages(me)
  local texts, cursor = {}, nil
  repeat
    local answer, response = me:call("tools/list", { cursor = cursor })
    texts[#texts + 1], cursor = bytes_of(response), answer.result.nextCursor
  until not cursor
  return table.concat(texts, "\n")
end

describe("a reload", function()
  it("that changes nothing changes no byte of any page, on any worker", function()
    local g <close> = gateway.start { workers = 2, scripts = many(120), config = { limits = { page = "8KiB" } } }
    local me <close> = g:client(STATELESS)
    local before = pages(me)
    assert.equal(200, g:admin("/reload", "POST").status)
    for _ = 1, 6 do -- the kernel picks the worker of each connection
      local other <close> = g:client(STATELESS)
      assert.equal(before, pages(other))
    end
    assert.equal(0, changed(g))
  end)

  it("that changes a list is counted when the list is served", function()
    local g <close> = gateway.start { workers = 1, scripts = many(2), env = { MOONPOOL_PLANS = "on" } }
    local me <close> = g:client(STATELESS)
    pages(me)
    local file = assert(io.open(g.dir .. "/scripts/tools/t003.lua", "w"))
    file:write 'return tool { "Another.", function() return "x" end }'
    file:close()
    wait.for_fact("the list to have three tools", 20, function() return #cjson.decode(pages(me):match "^[^\n]+").result.tools == 3 end)
    assert.equal(1, changed(g))
  end)
end)
