-- A script that changes everything it can reach, while it loads and while it runs, changes nothing for another script,
-- another client or its own next call, beyond the variables of its own file (B-36).
local cjson = require "cjson"
local gateway = require "spec.helpers.gateway"

-- Values that scripts could share. The script changes each of them wherever it finds it.
local taint = [[
local function change()
  local tries = {
    function() string.format = nil string.rep = function() return "tainted" end end,
    function() ("").rep = function() return "tainted" end end,
    function() getmetatable("").__index = function() return "tainted" end end,
    function() setmetatable("", { __index = {} }) end,
    function() _G.tostring = function() return "tainted" end end,
    function() tostring = function() return "tainted" end end,
    function() _G._G.ipairs = nil end,
    function() setmetatable(_G, { __index = function() return "tainted" end }) end,
    function() json.encode = function() return "tainted" end json.null = "tainted" end,
    function() rawset(json.array_mt, "__index", function() return "tainted" end) end,
    function() rawset(json.object_mt, "__pairs", function() return "tainted" end) end,
    function() json.empty_array[1] = "tainted" end,
    function() getmetatable(json.empty_array).__len = function() return 1 end end,
    function() package.loaded.string.rep = nil end,
    function() package.loaded["moonpool.json"].encode = nil end,
    function() coroutine.wrap = nil table.concat = nil table.sort = nil table.unpack = nil math.floor = nil utf8.char = nil os.time = nil end,
    function() log.info = nil store.get = nil time.now = nil base64.encode = nil t.string = nil ask.elicit = nil end,
    function() tool = nil fail = error try = nil closing = nil sleep = nil text = nil end,
    function() rawset(_G, "require", nil) end,
    function() load = function() return "tainted" end end,
    function() for name in next, getmetatable(_G) do getmetatable(_G)[name] = nil end end,
    function() debug.setmetatable(nil, {}) end,
    function() require("cjson").encode = function() return "tainted" end end,
    function() require("cjson").encode_max_depth(1) end,
    function() setmetatable(string, { __index = function() return "tainted" end }) end,
    function() setmetatable(json, { __index = function() return "tainted" end }) end,
  }
  local done = 0
  for _, one in ipairs(tries) do if pcall(one) then done = done + 1 end end
  return done
end]]

local probe = [[ json.encode {
  ("%d"):format(7), ("x"):rep(2), string.rep("y", 2), tostring(nil), json.encode { 1 }, json.encode { a = json.null }, json.encode(json.empty_array),
  tostring(json.array({}).x), json.encode(json.object {}), table.concat({ "a", "b" }), math.floor(2.5), utf8.char(65), tostring(rawget(_G, "left")),
  type(tool) .. type(fail) .. type(try) .. type(sleep) .. type(store.get) .. type(log.info) .. type(coroutine.wrap), base64.encode "hi",
  require("cjson").encode { { { 1 } } }, load "return 5"(), (select(2, pcall(error, "plain"))),
} ]]

local expected = {
  "7", "xx", "yy", "nil", "[1]", '{"a":null}', "[]", "nil", "{}", "ab", 2, "A", "nil", "functionfunctionfunctionfunctionfunctionfunctionfunction", "aGk=",
  "[[[1]]]", 5, "plain",
}

local scripts = {
  ["tools/echo.lua"] = "return tool { 'Echo.', function() return" .. probe .. "end }",
  ["tools/early.lua"] = taint .. " change() left = 'at load' return tool { 'Changes at load.', function() return left end }",
  ["tools/late.lua"] = taint ..
    " local tell = pcall return tool { 'Changes when called.', function() left = 'here' local done = change() return done .. '' end }",
  ["tools/self.lua"] = [[local me = "nobody"
    return tool { "Tells who it was called for.", input = { who = t.string }, function(args)
      local before = me
      local own <const> = args.who
      sleep(0.01)
      return before .. " " .. own
    end }]],
  ["tools/zeta.lua"] = "return tool { 'Loaded last.', function() return" .. probe .. "end }",
  ["prompts/hello.lua"] = "return prompt { 'Hello.', function() return" .. probe .. "end }",
  ["lib/own.lua"] = "return { answer = function() return" .. probe .. "end }",
  ["tools/lib.lua"] = "local own = require 'own' return tool { 'By a library.', function() return own.answer() end }",
}

local function told(me, name, arguments) return me:result("tools/call", { name = name, arguments = arguments }).content[1].text end

local function assert_untainted(me)
  for _, name in ipairs { "echo", "zeta", "lib" } do assert.same(expected, cjson.decode(told(me, name)), name) end
  assert.same(expected, cjson.decode(me:result("prompts/get", { name = "hello" }).messages[1].content.text))
end

describe("B-36 a script that changes all it can reach", function()
  it("changes nothing for other scripts, other clients and their next calls", function()
    local g <close> = gateway.start { scripts = scripts, workers = 1 }
    local one, two = g:client "2026-07-28", g:client "2025-11-25"
    assert_untainted(one) -- after the changes that early.lua made while it loaded
    assert.equal("at load", told(one, "early"))
    for _ = 1, 5 do
      one:call("tools/call", { name = "late" })
      assert_untainted(one)
      assert_untainted(two)
    end
    assert.equal("nobody b", told(two, "self", { who = "b" }))
    local stream = one:open("tools/call", { name = "self", arguments = { who = "a" } })
    assert.equal("nobody b", told(two, "self", { who = "b" }))
    assert.equal("nobody a", stream:answer().result.content[1].text)
    two:delete()
    two:close()
    one:close()
    assert.has_nothing_left(g)
  end)
end)
