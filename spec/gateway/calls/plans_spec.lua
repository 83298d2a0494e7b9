-- Call plans: C serves a plain tools/call, and everything else goes through lua/moonpool as if there were no plans.
-- Each call is sent to two gateways, with plans and without; the answers are the same bytes, and `calls_planned` says
-- which calls took a plan.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/add.lua"] = "--- Add.\n---@param a number\n---@param b? number\nreturn function(a, b) return a + (b or 0) end",
  ["tools/whole.lua"] = "--- Whole.\n---@param n integer\nreturn function(n, call) return math.type(n) .. ' ' .. call.method end",
  ["tools/joined.lua"] = "--- Joined.\n---@param a string\n---@param b boolean\nreturn function(a, b) return a .. tostring(b) end",
  ["tools/members.lua"] = [[return tool { "Members.", open = false,
    input = { a = t.number, b = t.string { optional = true }, c = t.boolean { default = true }, d = t.string { default = "d" } },
    function(args)
      local list = {}
      for name, value in pairs(args) do list[#list + 1] = name .. "=" .. tostring(value) end
      table.sort(list)
      return table.concat(list, " ")
    end }]],
  ["tools/bounded.lua"] = [[return tool { "Bounded.", input = {
      n = t.number { min = 1, max = 10 }, w = t.integer { above = 0, below = 10, optional = true },
      s = t.string { min = 2, max = 3, optional = true }, e = t.one_of { "red", "green" } },
    function(args) return args.n .. args.e end }]],
  ["tools/none.lua"] = [[return tool { "None.", input = { s = t.schema { type = "string", enum = json.array {} } },
    function(args) return args.s end }]],
  ["tools/nothing.lua"] = 'return tool { "No arguments.", function(args) return next(args) == nil end }',
  ["tools/nested.lua"] = [[return tool { "Nested.", input = { at = t.object { x = t.number, y = t.number { default = 5 } } },
    function(args) return args.at.x + args.at.y end }]],
  ["tools/listed.lua"] = [[return tool { "Listed.", input = { list = t.list(t.integer) }, function(args) return #args.list end }]],
  ["tools/pattern.lua"] = [[return tool { "Pattern.", input = { s = t.string { pattern = "^a" } }, function(args) return args.s end }]],
  ["tools/gives.lua"] = [[return tool { "Gives.", input = { what = t.string }, function(args, call)
    local what = args.what
    if what == "float" then return 0.1 elseif what == "third" then return 1 / 3 elseif what == "whole" then return 3.0
    elseif what == "zero" then return -0.0 elseif what == "huge" then return 1e300 elseif what == "14" then return 99999999999999.0
    elseif what == "15" then return 1e14 elseif what == "nan" then return 0 / 0 elseif what == "inf" then return -math.huge
    elseif what == "least" then return math.mininteger elseif what == "true" then return true, "more" elseif what == "false" then return false
    elseif what == "quotes" then return 'a "b" \\ \n \1 é €' elseif what == "bytes" then return "\xff" elseif what == "long" then return ("é"):rep(20000)
    elseif what == "table" then return { a = 1, list = { 1, 2 } } elseif what == "null" then return json.null
    elseif what == "block" then return text "a" elseif what == "blocks" then return { text "a", "b", 1 } elseif what == "nil" then return nil, "why"
    elseif what == "none" then return elseif what == "function" then return print elseif what == "fails" then fail "expected"
    elseif what == "refuses" then fail_request(7, "no", { a = 1 }) elseif what == "requires" then call:require "sampling"
    elseif what == "empty" then return "" elseif what == "link" then return link("https://example.org/x") end
  end }]],
  ["tools/fits.lua"] = [[return tool { "Fits.", input = { n = t.number }, output = { n = t.number }, function(args)
    return { n = args.n == 0 and "zero" or args.n } end }]],
  ["tools/shapes.lua"] = [[return tool { "Shapes.", output = { n = t.number { min = 0, optional = true }, i = t.integer { optional = true },
      s = t.string { optional = true }, e = t.optional(t.one_of { "a", "b" }), at = t.optional(t.object { x = t.number }) },
    input = { what = t.string }, function(args)
      local made = { whole = { n = 1, i = 2, s = 'a "b" é', e = "a", at = { x = 1.5 } }, more = { other = { 1, { a = json.null } }, n = 0.1 },
        empty = {},
        low = { n = -1 },
        nan = { n = 0 / 0 }, float = { i = 2.0 }, fraction = { i = 2.5 }, bytes = { s = "\xff" }, choice = { e = "c" }, inner = { at = {} },
        list = { 1, 2 }, array = json.array { 1 }, object = json.object {}, far = { n = 2 ^ 60 },
        deep = { at = { x = 1, y = { 1 } } }, func = { other = print },
        meta = setmetatable({}, { __index = { n = 1 } }), long = { s = ("x"):rep(70000) }, block = text "a" }
      return made[args.what] end }]],
  ["tools/checked.lua"] = [[return tool { "Checked.", output = t.list(t.integer), input = { n = t.integer }, function(args)
      local list = {} for i = 1, args.n do list[i] = i end if args.n == 3 then list[2] = "two" end return list end }]],
  ["tools/short_out.lua"] = "--- Out.\n---@param n number\n---@return { n: number, list: number[] }\nreturn function(n) return { n = n, list = { n, n } } end",
  ["tools/tables.lua"] = [[return tool { "Tables.", input = { what = t.string }, function(args)
      local made = { plain = { b = 1, a = { c = { 1, 2, "x" } } }, list = { 1, 2, { a = 1 } }, empty = {}, array = json.array {}, object = json.object {},
        blocks = { "a", text "b" }, bytes = bytes "x", func = { a = { print } }, mixed = { 1, a = 2 }, many = {}, far = { 1 }, loop = {},
        ordered = setmetatable({ b = 1, a = 2 }, { __order = { "b", "a" } }), text = { "a", "b" }, number = { 1, 2 } }
      for i = 1, 200 do made.many[i] = i end
      made.far[65] = text "late" for i = 2, 64 do made.far[i] = i end
      made.loop[1] = made.loop
      return made[args.what] end }]],
  ["tools/place.lua"] = [[return tool { "Place.", input = {
      at = t.object { x = t.number, y = t.number { default = 5 }, s = t.string { max = 3, optional = true } },
      to = t.optional(t.object { x = t.integer }), name = t.string { default = "here" } }, function(args)
      local list = {}
      for name, value in pairs(args) do
        if type(value) == "table" then for inner, v in pairs(value) do list[#list + 1] = name .. "." .. inner .. "=" .. tostring(v) end
        else list[#list + 1] = name .. "=" .. value end
      end
      table.sort(list)
      return table.concat(list, " ") end }]],
  ["tools/quick.lua"] = [[return tool { "Quick.", timeout = 0.05, function() sleep(20) end }]],
  ["tools/one_at_once.lua"] = [[return tool { "One at once.", concurrency = 1, input = { n = t.number }, function(args, call) return args.n end }]],
  ["tools/asks.lua"] = [[return tool { "Asks.", input = { n = t.number { default = 1 } }, function(args, call)
    local given, why = call:elicit("who", "Who?", { name = t.string })
    return given and given.name or why end }]],
  ["tools/scoped.lua"] = [[return tool { "Scoped.", scopes = { "a" }, function() return "scoped" end }]],
  ["tools/required.lua"] = [[return tool { "Required.", requires = { "sampling" }, function() return "able" end }]],
  ["tools/later.lua"] = [[return tool { "Later.", task = "optional", function() return "now" end }]],
  ["tools/mirrored.lua"] = [[return tool { "Mirrored.", input = { a = t.string { header = "A" } }, function(args) return args.a end }]],
}
local open = {}
for path, text in pairs(scripts) do
  if path ~= "tools/scoped.lua" then open[path] = text end
end

local REVISIONS = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" }

-- The number of calls that took a plan.
local function planned(g) return g:status().counters.calls_planned end

-- A body of 2026-07-28 and its headers. `params` and `meta` are further members, as JSON with a comma in front.
local function plain(name, arguments, meta, params)
  local text = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"%s%s,"_meta":{"io.modelcontextprotocol/protocolVersion":'
    .. '"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}%s}}}'):format(name, arguments and ',"arguments":' .. arguments or "",
    params or "", meta or "")
  return text, {
    Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
    ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name,
  }
end

-- The bytes of an answer, without the random ids of faults and sealed states.
local function body_of(g, text, headers)
  local c <close> = g:connect()
  local response = c:request({ method = "POST", path = "/mcp", headers = headers, body = text }, 20)
  return response.status .. " " .. response.body:gsub("internal error %x%x%x%x", "internal error"):gsub('"requestState":"[^"]*"', '"requestState":""')
end

local function start(more)
  local options = { workers = 1, scripts = open }
  for key, value in pairs(more or {}) do options[key] = value end
  local with = gateway.start(options)
  options.env = { MOONPOOL_PLANS = "off" }
  return with, gateway.start(options)
end

-- Calls that take a plan. Each row: name, arguments.
local taken = {
  { "add", '{"a":1,"b":2}' }, { "add", '{"b":2,"a":1}' }, { "add", '{"a":1}' }, { "add", '{ "a" : 1.5 , "b" : -2 }' }, { "add", '{"a":123456789012345678}' },
  { "add", '{"a":-0}' }, { "add", '{"a":-0.0}' }, { "whole", '{"n":7}' },
  { "joined", '{"a":"x","b":true}' },
  { "joined", '{"a":"a\\nb\\\\é\\"","b":false}' }, { "joined", '{"a":"","b":true}' },
  { "members", '{"a":1}' }, { "members", '{"d":"x","c":false,"b":"y","a":2}' }, { "members", '{"a":1,"b":"é"}' },
  { "bounded", '{"n":1,"e":"red"}' }, { "bounded", '{"n":10,"e":"green","w":9,"s":"éé"}' }, { "bounded", '{"n":9.5,"e":"red","s":"abc"}' },
  { "nothing", "{}" }, { "nothing" }, { "nested", '{"at":{"x":1}}' }, { "nested", '{"at":{"x":1,"y":2}}' }, { "listed", '{"list":[1,2,3]}' },
  { "listed", '{"list":[]}' }, { "pattern", '{"s":"abc"}' }, { "fits", '{"n":1}' }, { "fits", '{"n":0}' }, { "one_at_once", '{"n":3}' }, { "quick", "{}" },
}
for what in ([[float third whole zero huge 14 15 nan inf least true false quotes bytes long table null block blocks nil none function fails refuses requires
    empty link]]):gmatch "%S+" do taken[#taken + 1] = { "gives", ('{"what":"%s"}'):format(what) } end

local many_keys = {}
for n = 1, 20 do many_keys[n] = ('"%d":1'):format(n) end
many_keys = "{" .. table.concat(many_keys, ",") .. "}"

for what in ([[whole more empty low nan float fraction bytes choice inner list array object far deep func meta long block]]):gmatch "%S+" do
  taken[#taken + 1] = { "shapes", ('{"what":"%s"}'):format(what) }
end
for what in ([[plain list empty array object blocks bytes func mixed many far ordered loop text number]]):gmatch "%S+" do
  taken[#taken + 1] = { "tables", ('{"what":"%s"}'):format(what) }
end
for _, row in ipairs { { "checked", '{"n":2}' }, { "checked", '{"n":3}' }, { "checked", '{"n":0}' }, { "short_out", '{"n":1}' },
  { "place", '{"at":{"x":1}}' }, { "place", '{"at":{"y":2,"x":1,"s":"é"},"name":"n","to":{"x":3}}' }, { "place", '{"at":{"x":1,"s":"abc"}}' } } do
  taken[#taken + 1] = row
end

-- Calls that take no plan. Each row: the reason, the tool's name, its arguments, further members of _meta and of
-- params.
local left = {
  { "a wrong type", "add", '{"a":"1"}' }, { "null", "add", '{"a":null}' }, { "a missing argument", "add", '{"b":1}' }, { "no arguments", "add" },
  { "an unknown argument", "add", '{"a":1,"c":1}' }, { "an array in its place", "add", '{"a":[1]}' }, { "an object in its place", "add", '{"a":{}}' },
  { "a repeated argument", "add", '{"a":1,"a":2}' }, { "an escaped name", "add", '{"\\u0061":1}' },
  { "a \\u escape", "joined", '{"a":"\\u00e9","b":true}' }, { "an exponent", "add", '{"a":1e3}' },
  { "one that is too large", "add", '{"a":1e999}' }, { "19 digits", "add", '{"a":1234567890123456789}' },
  { "arguments that are null", "add", "null" }, { "arguments that are an array", "nothing", "[]" }, { "arguments that are a text", "add", '"a"' },
  { "a fraction for an integer", "whole", '{"n":1.5}' }, { "an integer written as a float", "whole", '{"n":7.0}' },
  { "a number for a text", "joined", '{"a":1,"b":true}' },
  { "a text for a boolean", "joined", '{"a":"x","b":"true"}' }, { "below its minimum", "bounded", '{"n":0.9,"e":"red"}' },
  { "above its maximum", "bounded", '{"n":11,"e":"red"}' }, { "at an exclusive bound", "bounded", '{"n":1,"e":"red","w":10}' },
  { "too short", "bounded", '{"n":1,"e":"red","s":"é"}' }, { "too long", "bounded", '{"n":1,"e":"red","s":"éééé"}' },
  { "an enum without values", "none", '{"s":"a"}' },
  { "not of the enum", "bounded", '{"n":1,"e":"blue"}' }, { "a bounded integer of 16 digits", "bounded", '{"n":1000000000000000,"e":"red"}' },
  { "a wrong member inside", "nested", '{"at":{"x":"1"}}' }, { "an unknown member inside", "nested", '{"at":{"x":1,"z":1}}' },
  { "a repeated member inside", "nested", '{"at":{"x":1,"x":1}}' }, { "a wrong item inside", "listed", '{"list":[1.5]}' },
  { "a wrong member of an inner object", "place", '{"at":{"x":"1"}}' }, { "an unknown one", "place", '{"at":{"x":1,"z":1}}' },
  { "a missing one", "place", '{"at":{"y":1}}' }, { "null there", "place", '{"at":{"x":null}}' }, { "an array there", "place", '{"at":{"x":[]}}' },
  { "a long text there", "place", '{"at":{"x":1,"s":"abcd"}}' }, { "an inner object that is none", "place", '{"at":1}' },
  { "a text that does not match", "pattern", '{"s":"b"}' },
  { "an unknown tool", "ad", '{"a":1}' }, { "a tool that is a task", "later", "{}" }, { "a tool that requires a capability", "required", "{}" },
  { "a tool with mirrored headers", "mirrored", '{"a":"x"}' },
  { "a log level", "add", '{"a":1}', ',"io.modelcontextprotocol/logLevel":"debug"' },
  { "a wrong log level", "add", '{"a":1}', ',"io.modelcontextprotocol/logLevel":"loud"' },
  { "a log level with an escape", "add", '{"a":1}', ',"io.modelcontextprotocol\\/logLevel":"loud"' },
  { "an unknown member of the protocol", "add", '{"a":1}', ',"io.modelcontextprotocol/other":1' },
  { "a repeated key inside _meta", "add", '{"a":1}', ',"mine":{"a":1,"b":[],"a":1}' }, { "one in a list", "add", '{"a":1}', ',"mine":[[{"a":1,"a":1}]]' },
  { "an escaped key inside _meta", "add", '{"a":1}', ',"mine":{"\\u0061":1}' }, { "many keys inside _meta", "add", '{"a":1}', ',"mine":' .. many_keys },
  { "a deep _meta", "add", '{"a":1}', ',"mine":' .. ("["):rep(20) .. ("]"):rep(20) },
  { "a task", "add", '{"a":1}', nil, ',"task":{}' }, { "answers to questions", "add", '{"a":1}', nil, ',"inputResponses":{}' },
  { "a state", "add", '{"a":1}', nil, ',"requestState":"x"' }, { "another member", "add", '{"a":1}', nil, ',"other":1' },
  { "more than 64 KiB", "joined", '{"a":"' .. ("x"):rep(65536) .. '","b":true}' },
}

if os.getenv "MOONPOOL_PLANS" == "off" then
  describe("call plans", function() pending "are off: MOONPOOL_PLANS" end)
  return
end

describe("call plans", function()
  local with, without

  lazy_setup(function() with, without = start() end)
  lazy_teardown(function()
    with:stop()
    without:stop()
  end)

  it("serve plain calls with the answers of the general path", function()
    for _, row in ipairs(taken) do
      local before, text, headers = planned(with), plain(row[1], row[2])
      assert.equal(body_of(without, text, headers), body_of(with, text, headers), row[1] .. " " .. (row[2] or ""))
      assert.equal(before + 1, planned(with), row[1] .. " " .. (row[2] or ""))
    end
    assert.equal(0, planned(without))
  end)

  it("make the values that the general path makes, which MOONPOOL_PLANS=both compares", function()
    local g <close> = gateway.start { workers = 1, scripts = open, env = { MOONPOOL_PLANS = "both" } }
    for _, row in ipairs(taken) do body_of(g, plain(row[1], row[2])) end
    assert.equal(#taken, planned(g)) -- with MOONPOOL_PLANS=both, a difference would have ended the process
  end)

  it("leave every other call to the general path", function()
    for _, row in ipairs(left) do
      local before, text, headers = planned(with), plain(table.unpack(row, 2, 5))
      assert.equal(body_of(without, text, headers), body_of(with, text, headers), row[1])
      assert.equal(before, planned(with), row[1])
    end
  end)

  it("serve members of _meta that change nothing", function()
    for _, meta in ipairs { ',"progressToken":"p"', ',"traceparent":"00-0-0-00","mine":{"a":[1,{"b":null}]}',
      ',"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}' } do
      local before, text, headers = planned(with), plain("add", '{"a":1}', meta)
      assert.equal(body_of(without, text, headers), body_of(with, text, headers))
      assert.equal(before + 1, planned(with), meta)
    end
  end)

  for _, revision in ipairs(REVISIONS) do
    it("answer as the general path does in " .. revision, function()
      local one <close> = with:client(revision)
      local other <close> = without:client(revision)
      local cases = {
        { "add", { a = 1, b = 2 } }, { "add", { a = "x" } }, { "members", { a = 1, b = "x" } }, { "fits", { n = 1 } }, { "fits", { n = 0 } },
      }
      for _, what in ipairs { "third", "quotes", "table", "blocks", "fails", "refuses", "nil", "none" } do cases[#cases + 1] = { "gives", { what = what } } end
      local before = planned(with)
      for _, case in ipairs(cases) do
        local a = one:call("tools/call", { name = case[1], arguments = case[2] })
        local b = other:call("tools/call", { name = case[1], arguments = case[2] })
        local is_fault = case[1] == "fits" and case[2].n == 0
        for _, answer in ipairs(is_fault and { a, b } or {}) do answer.result.content[1].text = answer.result.content[1].text:sub(1, 14) end
        assert.same(b, a)
      end
      assert.equal(before + #cases - 1, planned(with))
    end)
  end

  it("give no plan to a call in a session that is not initialized", function()
    local c <close> = with:client("2024-11-05", { initialize = false })
    local before = planned(with)
    assert.truthy(c:call("tools/call", { name = "add", arguments = { a = 1 } }).error)
    assert.equal(before, planned(with))
  end)

  it("let a handler ask its client, whose answers come by the general path", function()
    for _, revision in ipairs { "2025-06-18", "2025-11-25" } do
      local c <close> = with:client(revision, { capabilities = { elicitation = {} } })
      local before, stream = planned(with), c:open("tools/call", { name = "asks", arguments = {} })
      local asked = stream:wait_event "elicitation/create".json
      c:post { jsonrpc = "2.0", id = asked.id, result = { action = "accept", content = { name = "Ann" } } }
      assert.equal("Ann", stream:answer().result.content[1].text)
      assert.equal(before + 1, planned(with))
    end
    local c <close> = with:client("2026-07-28", { capabilities = { elicitation = {} } })
    for _, arguments in ipairs { {}, { n = 2 } } do
      local before = planned(with)
      local first = c:result("tools/call", { name = "asks", arguments = arguments })
      assert.equal("input_required", first.resultType)
      assert.equal(before + 1, planned(with))
      local second = c:result("tools/call", { name = "asks", arguments = arguments, requestState = first.requestState,
        inputResponses = { who = { action = "accept", content = { name = "Ann" } } } })
      assert.equal("Ann", second.content[1].text)
      assert.equal(before + 1, planned(with))
    end
  end)
end)

describe("a fault in a planned handler", function()
  it("is logged with its trace, and closes what it opened before it is answered", function()
    local g <close> = gateway.start { workers = 1, scripts = { ["tools/faulty.lua"] = [[
local function inner(n) local x = nil return x[n] end
--- Faulty.
---@param n integer
return function(n)
  local closer <close> = setmetatable({}, { __close = function() sleep(0.01) log.info "closed" end })
  local value = inner(n)
  return value
end]] } }
    local c <close> = g:client "2026-07-28"
    local text = c:result("tools/call", { name = "faulty", arguments = { n = 1 } }).content[1].text
    local line = g:wait_log("tool failed", { name = "faulty", id = text:match "internal error (%x+)" })
    assert.equal("scripts/tools/faulty.lua:1 < scripts/tools/faulty.lua:6", line.fields.trace)
    assert.equal(1, planned(g))
    g:wait_log "closed"
  end)
end)

describe("a cancelled planned call", function()
  it("runs its closers, which may wait and still read what the client sent", function()
    local g <close> = gateway.start { workers = 1, scripts = { ["tools/waits.lua"] = [[
return tool { "Waits.", input = { n = t.integer }, function(args, call)
  local closer <close> = setmetatable({}, { __close = function()
    sleep(0.01)
    log.info("closed", { mine = call.meta.mine, method = call.method })
  end })
  call:progress(1)
  sleep(60)
end }]] } }
    local c <close> = g:client "2026-07-28"
    c:open("tools/call", { name = "waits", arguments = { n = 1 }, _meta = { progressToken = 1, mine = "kept" } }):wait "notifications/progress":hang_up()
    g:wait_log("closed", { mine = "kept", method = "tools/call" })
    assert.equal(1, planned(g))
    assert.has_nothing_left(g)
  end)
end)

describe("plans follow", function()
  local function value(c, name) return c:call("tools/call", { name = name or "one", arguments = { n = 1 } }) end

  it("tools that are switched off and on", function()
    local g <close> = gateway.start { workers = 2, scripts = {
      ["tools/one.lua"] = 'return tool { "One.", input = { n = t.integer }, function() return "one" end }',
      ["tools/off.lua"] = '--- Off.\nreturn function() disable("tool", "one") end', ["tools/on.lua"] = '--- On.\nreturn function() enable("tool", "one") end',
    } }
    local c <close> = g:client "2026-07-28"
    local other <close> = g:client "2026-07-28"
    for _ = 1, 3 do
      assert.equal("one", value(c).result.content[1].text)
      local before = planned(g)
      c:result("tools/call", { name = "off" })
      assert.equal("unknown tool 'one'", value(c).error.message:match "^unknown tool 'one'")
      assert.equal(before + 1, planned(g))
      c:result("tools/call", { name = "on" })
    end
    assert.equal("one", value(other).result.content[1].text)
  end)

  it("policies: a planned call goes through them", function()
    local g <close> = gateway.start { workers = 1, scripts = {
      ["tools/one.lua"] = "--- One.\n---@param n integer\nreturn function(n) return n end",
      ["tools/two.lua"] = "--- Two.\n---@param n integer\nreturn function(n) return n end",
      ["policy/more.lua"] = [[return policy { tools = { "one" }, function(call, next)
        call.args = { n = call.args.n + 1 }
        return next(call) .. call.name
      end }]],
      ["policy/some.lua"] = [[return limit { tools = { "two" }, rate = 1, per = 3600 }]],
    } }
    local c <close> = g:client "2026-07-28"
    assert.equal("2one", value(c).result.content[1].text)
    assert.equal("1", value(c, "two").result.content[1].text)
    assert.truthy(value(c, "two").error or value(c, "two").result.isError)
  end)

  it("a reload: calls end on the scripts they began with, and new calls take new plans", function()
    local function script(n)
      return ([[return tool { "One.", input = { n = t.integer }, function(args, call)
        call:progress(1)
        if args.n == 2 then sleep(0.3) end
        return "%s" end }]]):format(n)
    end
    local g <close> = gateway.start { workers = 1, config = { scripts = { watch = "false" } }, scripts = { ["tools/one.lua"] = script(1) } }
    local c <close>, streams = g:client "2026-07-28", {}
    for n = 1, 3 do
      streams[n] = c:open("tools/call", { name = "one", arguments = { n = 2 }, _meta = { progressToken = 1 } }):wait "notifications/progress"
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/one.lua", "wb"))
      file:write(script(n + 1))
      file:close()
      assert.equal(200, g:admin("/reload", "POST").status)
      assert.equal(tostring(n + 1), value(c).result.content[1].text)
    end
    for n = 1, 3 do assert.equal(tostring(n), streams[n]:answer().result.content[1].text) end
    assert.equal(6, planned(g))
    c:close()
    assert.has_nothing_left(g)
  end)
end)
