-- Numbers that Lua cannot hold (25 digits, 1e400, more than 17 digits behind the point) keep their digits where a
-- script passes on the table that has them, changed or not; with call plans and without.
local assert = require "spec.helpers.asserts"
local gateway = require "spec.helpers.gateway"
local trusted = require "spec.helpers.trusted"

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Echo.", input = t.schema { type = "object" }, function(args) return args end }]],
  ["tools/loose.lua"] = [[return tool { "Loose.", input = {
    n = t.integer { optional = true }, x = t.number { optional = true }, list = t.optional(t.list(t.number)),
    d = t.string { default = "there" } }, function(args) return args end }]],
  ["tools/inner.lua"] = [[return tool { "Inner.", input = { list = t.list(t.number) }, function(args) return { taken = args.list, more = true } end }]],
  ["tools/scalar.lua"] = [[return tool { "Scalar.", input = { n = t.integer }, function(args) return math.type(args.n) .. " " .. args.n % 1 end }]],
  ["tools/kinds.lua"] = [[return tool { "Kinds.", input = t.schema { type = "object" }, function(args)
    return { object = getmetatable(args) == nil, list = getmetatable(args.list) == json.array_mt, raw = pcall(rawset, args, "a", 1),
      set = pcall(setmetatable, args, {}), array = pcall(json.array, args.list), count = #args.list } end }]],
  ["tools/polite.lua"] = [[return tool { "Polite.", input = t.schema { type = "object" }, function(args) return args end }]],
  ["tools/kept.lua"] = [[local kept
    return tool { "Keeps its first arguments.", input = t.schema { type = "object" }, function(args) kept = kept or args return kept end }]],
  ["tools/meta.lua"] = [[return tool { "Meta.", function(_, call) return { got = call.meta["example.org/n"] } end }]],
  ["tools/race.lua"] = [[return tool { "Races.", timeout = 50, input = t.schema { type = "object" }, function(args)
    local texts, list, n = 0, args.list, #args.list
    parallel { function()
      for _ = 1, 20 do
        local good, text = pcall(json.encode, args)
        if good and json.decode(text) then texts = texts + 1 end
        local is_meant = good
        for _, words in ipairs { "next", "holes", "inside itself", "deeper than" } do is_meant = is_meant or tostring(text):find(words) end
        if not is_meant then error(text) end -- the other one may be in the middle of a change
      end
    end, function()
      for round = 1, 40 do
        for i = 1, n, 97 do
          local item = list[i]
          item.a, item["b" .. round], item.c = round % 2 == 0 and {} or nil, { round }, item
          item.c = nil
        end
        for i = 1, n, 101 do list[i] = setmetatable({ a = round }, round % 3 == 0 and {} or nil) end
        if round % 5 == 0 then for i = 1, n do list[i] = list[n - i + 1] end end
        sleep(0)
      end
    end }
    return texts end }]],
  ["policy/change.lua"] = [[return policy { tools = { "polite" }, function(call, next)
    call.args.secret, call.args.added = nil, 1
    return next(call) end }]],
}

local function ask(g, name, arguments, meta)
  local body = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":'
    .. '"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}%s}}}'):format(name, arguments, meta or "")
  local c <close> = g:connect()
  local response = c:request({ method = "POST", path = "/mcp", body = body, headers = {
    Accept = "application/json, text/event-stream", ["Content-Type"] = "application/json", ["MCP-Protocol-Version"] = "2026-07-28",
    ["Mcp-Method"] = "tools/call", ["Mcp-Name"] = name,
  } }, 20)
  local result = response:json().result
  if not result then return response.body end
  local text = result.content[1].text
  if result.structuredContent then assert.truthy(response.body:find('"structuredContent":' .. text, 1, true), response.body) end
  return text
end

local digits = "1234567890123456789012345"

for _, plans in ipairs { "on", "off" } do
  describe("a number that Lua cannot hold, with call plans " .. plans, function()
    local g
    setup(function() g = gateway.start { workers = 1, scripts = scripts, env = { MOONPOOL_PLANS = plans == "off" and "off" or nil } } end)
    teardown(function() g:__close() end)

    it("keeps its digits where the arguments are the result", function()
      for _, arguments in ipairs {
        '{"n":' .. digits .. "}", '{"n":-' .. digits .. ',"a":1}', '{"x":[{"n":' .. digits .. "}]}", '{"b":1e400,"a":1.0}', '{"a":1e-400}',
        '{"n":18446744073709551616.5}', '{"n":0.12345678901234567890123}', '{ "b" : [ ' .. digits .. ', 1.0 ], "a":"\\u0041\\ud834\\udd1e" }',
        '{"n":9223372036854775809}', '{"n":9007199254740993.0}', '{"n":1.00000000000000000001}',
      } do assert.equal(arguments, ask(g, "echo", arguments)) end
    end)

    it("keeps them beside defaults that are added, and inside a table of its own", function()
      assert.equal('{"x":1.0,"n":' .. digits .. ',"d":"there"}', ask(g, "loose", '{"x":1.0,"n":' .. digits .. "}"))
      assert.equal('{"x":0.12345678901234567890123,"d":"there"}', ask(g, "loose", '{"x":0.12345678901234567890123}'))
      assert.equal('{"list":[' .. digits .. '],"d":"there"}', ask(g, "loose", '{"list":[' .. digits .. "]}"))
      assert.equal('{"more":true,"taken":[1.0,' .. digits .. "]}", ask(g, "inner", '{"list":[1.0,' .. digits .. "]}"))
    end)

    it("keeps them where a policy changes a member beside it", function()
      assert.equal('{"n": ' .. digits .. ',"z":1.0,"added":1}', ask(g, "polite", '{"secret":7,"n": ' .. digits .. ',"z":1.0}'))
    end)

    it("keeps them in a table that a later call returns", function()
      local arguments = '{"n":' .. digits .. "}"
      assert.equal(arguments, ask(g, "kept", arguments))
      for n = 1, 3 do assert.equal(arguments, ask(g, "kept", ('{"n":%d}'):format(n))) end
    end)

    it("keeps them in _meta", function()
      assert.equal('{"got":[' .. digits .. "]}", ask(g, "meta", "{}", ',"example.org/n":[' .. digits .. "]"))
    end)

    it("is a float to the script, and an integer to the schema if it is whole", function()
      assert.equal("float 0.0", ask(g, "scalar", '{"n":' .. digits .. "}"))
      assert.matches("must be an integer", ask(g, "scalar", '{"n":0.12345678901234567890123}'), 1, true)
    end)

    it("is in a table that looks like any other", function()
      assert.equal(ask(g, "kinds", '{"list":[1,2]}'), ask(g, "kinds", '{"list":[1,2],"n":' .. digits .. "}"))
      assert.matches('"object":true', ask(g, "kinds", '{"list":[1,2],"n":' .. digits .. "}"), 1, true)
    end)

    it("changes nothing for numbers that Lua can hold", function()
      for _, row in ipairs {
        { '{"b":1,"a":2}', '{"a":2,"b":1}' }, { '{"n":1.00}', '{"n":1.0}' }, { '{"n":0.30000000000000004,"a":1}', '{"a":1,"n":0.30000000000000004}' },
        { '{"n":9223372036854775807,"a":1}', '{"a":1,"n":9223372036854775807}' }, { '{"n":1e22,"a":1}', '{"a":1,"n":1e+22}' },
        { '{"n":100000000000000000000,"a":1}', '{"a":1,"n":1e+20}' }, { '{"n":1.7976931348623157e308,"a":0}', '{"a":0,"n":1.7976931348623157e+308}' },
        { '{"n":0.1,"a":0.0}', '{"a":0.0,"n":0.1}' },
      } do assert.equal(row[2], ask(g, "echo", row[1])) end
    end)

    it("is written while other tasks change its tables", function()
      local arguments = '{"n":' .. digits .. ',"list":[' .. ('{"a":[1.0,{"x":2}],"d":"\\u0041"},'):rep(5000) .. "{}]}"
      local text = ask(g, "race", arguments)
      assert.is_true((tonumber(text) or 0) > 0, text)
    end)

    it("costs its call's memory and nothing later", function()
      local arguments = '{"list":[' .. ('{"a":[1]},'):rep(10000) .. digits .. "]}"
      for _ = 1, 3 do assert.equal(arguments, ask(g, "echo", arguments)) end
      assert.has_nothing_left(g)
    end)
  end)
end

describe("debug.getmetatable of a trusted script", function()
  it("shows no metatable of the gateway's own", function()
    local g <close> = trusted.start()
    local me = g:client "2026-07-28"
    assert.same({ "nil", "true", "true" }, trusted.run(me, [[
      local json = package.loaded["moonpool.json"]
      local t = json.preserving '{"a":[1.0]}'
      return { tostring(debug.getmetatable(t)), tostring(debug.getmetatable(t.a) == json.array_mt), tostring(json.encode(t) == '{"a":[1.0]}') }]]))
    me:close()
  end)
end)
