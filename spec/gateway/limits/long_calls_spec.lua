-- C functions that a script can give much work take turns with other calls, or refuse: the worker serves other calls
-- meanwhile.
local beat = require "spec.helpers.beat"
local code = require "spec.helpers.code"

local MOST_MS = 50

-- Code that prepares, code that runs, its result.
local long = {
  ["table.sort of numbers"] = { "local t = {} for i = 1, 1000000 do t[i] = math.random(1000000) end",
    "table.sort(t) for i = 2, #t do assert(t[i - 1] <= t[i]) end return #t", "1000000" },
  ["table.sort of long texts"] = { "local t = {} for i = 1, 1000 do t[i] = ('a'):rep(20000) .. math.random(1000000) end",
    "table.sort(t) for i = 2, #t do assert(t[i - 1] <= t[i]) end return #t", "1000" },
  ["table.sort of many texts"] = { "local t = {} for i = 1, 100000 do t[i] = 'a' .. math.random(1000000) end",
    "table.sort(t) for i = 2, #t do assert(t[i - 1] <= t[i]) end return #t", "100000" },
  ["table.sort of what is sorted but for its end"] = { "local t = {} for i = 1, 300000 do t[i] = i end t[300000] = 0.5",
    "table.sort(t) for i = 2, #t do assert(t[i - 1] <= t[i]) end return t[1]", "0.5" },
  ["table.insert in front"] = { "local t = {} for i = 1, 2000000 do t[i] = i end", "table.insert(t, 1, 0) return t[1] + t[2] + t[2000001]", "2000001" },
  ["table.remove in front"] = { "local t = {} for i = 1, 2000000 do t[i] = i end", "return table.remove(t, 1) + t[1] + #t", "2000002" },
  ["table.concat of numbers"] = { "local t = {} for i = 1, 1000000 do t[i] = i / 3 end", "return #table.concat(t, ',', 2)", "13555548" },
  ["base64"] = { "local s = ('\\0\\1\\2\\3\\4'):rep(2000000)", "local e = base64.encode(s) assert(base64.decode(e) == s) return #e", "13333336" },
  ["json.decode of numbers"] = { "local s = '[' .. ('0,'):rep(1000000) .. '0]'", "return #json.decode(s)", "1000001" },
  ["json.decode of objects"] = { "local s = '[' .. ('{\"a\":1},'):rep(100000) .. '{}]'", "local t = json.decode(s) return #t + t[100000].a", "100002" },
  ["json.decode of a name twice"] = { "local s = '[' .. ('0,'):rep(1000000) .. '{\"a\":1,\"a\":2}]'", "return select(2, json.decode(s))",
    "repeated key \"a\" at byte 2000003" },
  ["json.encode with __order"] = { "local t, o = {}, {} for i = 1, 20000 do t['k' .. i] = i o[i] = 'n' .. i end",
    "return #json.encode(setmetatable(t, { __order = o }))", "277789" },
}

local refused = {
  ["os.date"] = { "", "return os.date(('%c'):rep(1000000))", "a format must have at most 1024 bytes" },
  ["string.pack"] = { "", "return string.pack((' '):rep(10000000))", "a format must have at most 65536 bytes" },
  ["string.packsize"] = { "", "return string.packsize(('x'):rep(10000000))", "a format must have at most 65536 bytes" },
  ["string.unpack"] = { "", "return string.unpack(('x'):rep(10000000), '')", "a format must have at most 65536 bytes" },
  ["string.pack, c"] = { "", "return string.pack('c1000000000', '')", "the string would be %d+ bytes or more" },
  ["string.format, q"] = { "local s = ('x'):rep(5000000)", "return ('%q'):format(s)", "takes a string of at most 4194304 bytes" },
}

-- Each call returns nil and an error text.
local uncompiled = {
  ["too long"] = { "local s = ('-'):rep(1 << 20) .. '\\n'", "load takes at most 1048576 bytes" },
  ["a function, too long"] = { "local s = function() return ('-'):rep(10000) end", "load takes at most 1048576 bytes" },
  ["names that are sought in vain"] = { [[local locals, text = {}, {}
    for i = 1, 190 do locals[i] = "local a" .. i .. "\n" end
    for i = 1, 100 do text[i] = "local function f() " .. table.concat(locals) end
    local s = table.concat(text) .. ("x=x;"):rep(100000)]], "compiling the file takes too long" },
}

describe("a function of C that has much to do", function()
  it("lets other calls have their turns", function()
    local g <close> = beat.start { config = { limits = { call = { cpu = "60s" } } } }
    for name, row in pairs(long) do
      local _, got = beat.within(MOST_MS, name, function() return beat.longest(g, row[1], row[2]) end)
      assert.truthy(got.ok, name .. ": " .. tostring(got.value))
      assert.equal(row[3], got.value, name)
    end
    assert.has_nothing_left(g)
  end)

  it("or refuses, and says what it takes", function()
    local g <close> = beat.start()
    for name, row in pairs(refused) do
      local _, got = beat.within(MOST_MS, name, function() return beat.longest(g, row[1], row[2]) end)
      assert.is_false(got.ok, name)
      assert.truthy(got.value:find(row[3]), name .. ": " .. got.value)
    end
    assert.has_nothing_left(g)
  end)

  it("refuses source text that would take long to compile", function()
    local g <close> = beat.start()
    for name, row in pairs(uncompiled) do
      local _, got = beat.within(2 * MOST_MS, name, function() return beat.longest(g, row[1], "return load(s)") end)
      assert.is_true(got.ok, got.value)
      assert.truthy(got.why and got.why:find(row[2], 1, true), name .. ": " .. tostring(got.why))
    end
    local _, got = beat.longest(g, "local s = 'return ' .. ('1+'):rep(10000) .. '1'", "return load(s)()")
    assert.equal("10001", got.value)
    assert.has_nothing_left(g)
  end)
end)

describe("table.sort and table.concat", function()
  it("give the results of Lua's own functions, for every length and kind", function()
    local g <close> = code.start { workers = 1 }
    local me = g:client "2026-07-28"
    assert.is_true(code.run(me, [[
      for _, n in ipairs { 0, 1, 2, 3, 511, 512, 513, 1024, 1025, 5000 } do
        local numbers, texts = {}, {}
        for i = 1, n do
          numbers[i] = math.random(n)
          texts[i] = ("%05d"):format(numbers[i]) .. (i % 7 == 0 and n > 600 and ("x"):rep(300) or "")
        end
        local joined, byte = table.concat(texts, "+"), table.concat(numbers)
        local parts = {}
        for i = 1, n do parts[i] = texts[i] end
        assert(joined == (n == 0 and "" or ("%s"):rep(n, "+"):format(table.unpack(parts))))
        assert(#byte > 0 or n == 0)
        for _, list in ipairs { numbers, texts } do
          local count = {}
          for _, value in ipairs(list) do count[value] = (count[value] or 0) + 1 end
          table.sort(list)
          for i = 1, n do
            assert(i == 1 or list[i - 1] <= list[i])
            count[list[i] ] = count[list[i] ] - 1
          end
          for _, left in pairs(count) do assert(left == 0) end
        end
      end
      local mixed = select(2, pcall(table.sort, { 1, "a" }))
      assert(mixed:find "attempt to compare", mixed)
      assert(select(2, pcall(table.sort, { 1, 2, 3 }, 7)):find "bad argument")
      local holes = {}
      for i = 1, 3000 do holes[i] = i end
      holes[2500] = {}
      assert(select(2, pcall(table.concat, holes)):find "invalid value %(table%) at index 2500")
      assert(table.concat(holes, ",", 2499, 2499) == "2499" and table.concat(holes, ",", 5, 4) == "")
      return true]], 30))
    me:close()
    assert.has_nothing_left(g)
  end)
end)

describe("math.random", function()
  it("draws from a state that each script has for itself", function()
    local draws = [[local list = {} for i = 1, 4 do list[i] = math.random(1 << 40) end return list]]
    local g <close> = code.start { workers = 1, scripts = {
      ["tools/other.lua"] = "return tool { 'Draws.', function() for _ = 1, 100 do math.random() end return 'drawn' end }",
    } }
    local me = g:client "2026-07-28"
    local seen = {}
    for _ = 1, 20 do
      assert.equal("drawn", me:call("tools/call", { name = "other", arguments = {} }).result.content[1].text)
      for _, number in ipairs(code.run(me, draws)) do
        assert.is_nil(seen[number])
        seen[number] = true
      end
    end
    -- Two scripts share nothing: a function of one file is not a function of the other.
    assert.is_true(code.run(me, "return math.random(3) <= 3 and math.random() < 1 and math.type(math.random(0)) == 'integer'"))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("is another function in every file", function()
    local g <close> = code.start { workers = 1, scripts = {
      ["lib/other.lua"] = "return { random = math.random, string = string.rep }",
    } }
    local me = g:client "2026-07-28"
    assert.same({ false, true }, code.run(me, "local other = require 'other' return { other.random == math.random, other.string == string.rep }"))
    me:close()
    assert.has_nothing_left(g)
  end)
end)
