-- What core/json and the `json` of scripts promise, value by value. lua-cjson is the second reader.
local c_json = require("modules").json
local json = c_json.lua
local cjson = require("cjson")
local children = require("spec.helpers.children")

local function keys(members)
  local list = {}
  for i, member in ipairs(members) do list[i] = member.level .. member.key end
  return table.concat(list, " ")
end

describe("a scan", function()
  it("names the outermost type", function()
    local cases = { null = "null", ["true"] = "true", ["false"] = "false", ["-1.5e3"] = "number", ['"s"'] = "string",
      ["[]"] = "array", [" \t\r\n{} \n"] = "object" }
    for text, type in pairs(cases) do
      assert.same({ "ok", type }, { c_json.scan(text) })
    end
  end)

  it("says what is broken, and where", function()
    local cases = {
      { "", "text ends too early", 0 },
      { '{"a":', "text ends too early", 5 },
      { "[1,]", "unexpected character", 3 },
      { '{"a":1,}', "expected a key", 7 },
      { '{"a" 1}', "expected ':'", 5 },
      { "[1 2]", "expected ',' or a closing bracket", 3 },
      { "[1}", "expected ',' or a closing bracket", 2 },
      { "{} {}", "text after the value", 3 },
      { "{}\0", "text after the value", 2 },
      { "-", "text ends too early", 1 },
      { "[1.]", "malformed number", 3 },
      { "[1e+]", "malformed number", 4 },
      { "[01]", "expected ',' or a closing bracket", 2 },
      { '["\\x"]', "unknown escape", 3 },
      { '["\\u12g4"]', "unknown escape", 3 },
      { '["\1"]', "control character in a string", 2 },
      { '["\xff"]', "not UTF-8", 2 },
      { '["\\ud800"]', "lone surrogate", 3 },
      { "\xef\xbb\xbf{}", "unexpected character", 0 },
    }
    for _, case in ipairs(cases) do
      local result, _, what, offset = c_json.scan(case[1])
      assert.same({ "broken", case[2], case[3] }, { result, what, offset }, case[1])
    end
  end)

  it("takes UTF-8 as RFC 3629 has it, at any place in a vector", function()
    local good = { "\u{7f}", "\u{80}", "\u{7ff}", "\u{800}", "\u{d7ff}", "\u{e000}", "\u{ffff}", "\u{10000}", "\u{10ffff}" }
    local bad = { "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2A", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
      "\xed\xbf\xbf", "\xe1\x80", "\xe1\x80A", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf1\x80\x80", "\xff" }
    for before = 0, 33 do
      for _, bytes in ipairs(good) do
        assert.equal("ok", c_json.scan('"' .. ("a"):rep(before) .. bytes .. '"'))
      end
      for _, bytes in ipairs(bad) do
        assert.equal("broken", c_json.scan('"' .. ("a"):rep(before) .. bytes .. '"'))
        assert.equal("broken", c_json.scan('"' .. ("a"):rep(before) .. bytes .. ("a"):rep(33) .. '"'))
      end
    end
  end)

  it("wants surrogates in pairs", function()
    for _, text in ipairs { '"\\ud834\\udd1e"', '"\\uD834\\uDD1E\\u0000"' } do assert.equal("ok", c_json.scan(text)) end
    for _, text in ipairs { '"\\udd1e"', '"\\ud834"', '"\\ud834x"', '"\\ud834\\n"', '"\\ud834\\ud834"', '"\\udd1e\\ud834"',
      '"\\ud834\\u0041"', '"\\ud834\\udd1' } do
      assert.equal("broken", c_json.scan(text), text)
    end
  end)

  it("ends at every cut of a good text", function()
    local text = '{"a":[1,-2.5e+3,true,false,null,"x\\u00e9\\ud834\\udd1e\u{20ac}",{"b":{}}],"c":"d"}'
    assert.equal("ok", c_json.scan(text))
    for length = 0, #text - 1 do
      assert.equal("broken", c_json.scan(text:sub(1, length)))
    end
  end)
end)

describe("looking into objects", function()
  it("shows the members of the outermost object, and no further", function()
    local members, result = c_json.members('{"a" : {"b":1} , "c":[{"d":2}],"e": "x" }')
    assert.equal("ok", result)
    assert.same({
      { level = 1, key = "a", type = "object", value = '{"b":1}' },
      { level = 1, key = "c", type = "array", value = '[{"d":2}]' },
      { level = 1, key = "e", type = "string", value = '"x"' },
    }, members)
  end)

  it("enters the objects that the caller names, inner members first", function()
    local text = '{"id":1,"params":{"name":"x","_meta":{"t":1},"arguments":{"_meta":{"no":1}}},"z":[]}'
    local members = c_json.members(text, { params = true, _meta = true })
    assert.equal("1id 2name 3t 2_meta 2arguments 1params 1z", keys(members))
  end)

  it("unescapes keys before they are asked about or shown", function()
    local members = c_json.members('{"p\\u0061rams":{"\\u006e":1},"\\n":2}', { params = true })
    assert.equal("2n 1params 1\n", keys(members))
  end)

  it("shows nothing of arrays and scalars", function()
    for _, text in ipairs { '[{"a":1,"a":2}]', "1", '"a"', "null" } do
      local members, result = c_json.members(text)
      assert.same({ {}, "ok" }, { members, result })
    end
  end)

  it("refuses a repeated key, however it is spelled, and shows the first only", function()
    for _, again in ipairs { '"method"', '"\\u006dethod"', '"metho\\u0064"' } do
      local text = '{"method":1,' .. again .. ':2,"id":3}'
      local members, result, _, what, offset = c_json.members(text)
      assert.same({ "repeated", "repeated key", 12 }, { result, what, offset })
      assert.equal("1method 1id", keys(members))
      assert.equal("1", members[1].value)
    end
    assert.equal("repeated", select(2, c_json.members('{"":1,"":2}')))
    assert.equal("ok", select(2, c_json.members('{"a":1,"A":2,"a\\u0000":3}')))
  end)

  it("does not enter an object that repeats a key", function()
    local members, result = c_json.members('{"p":{"a":1},"p":{"b":2}}', { p = true })
    assert.same({ "repeated", "2a 1p" }, { result, keys(members) })
  end)

  it("compares keys only where it looks", function()
    local text = '{"params":{"a":1,"a":2},"x":[{"b":1,"b":2}]}'
    assert.equal("ok", select(2, c_json.members(text)))
    assert.equal("repeated", select(2, c_json.members(text, { params = true })))
    assert.equal("ok", select(1, c_json.scan(text)))
  end)

  it("lets broken win over repeated", function()
    assert.equal("broken", select(2, c_json.members('{"a":1,"a":2')))
  end)

  it("takes 256 keys and not one more", function()
    local function object(count)
      local parts = {}
      for i = 1, count do parts[i] = ('"k\\u0030%d":%d'):format(i, i) end
      return "{" .. table.concat(parts, ",") .. "}"
    end
    local members, result = c_json.members(object(256))
    assert.same({ "ok", 256, "k0256" }, { result, #members, members[256].key })
    local _, what
    members, result, _, what = c_json.members(object(257))
    assert.same({ "repeated", "more than 256 keys", 256 }, { result, what, #members })
    assert.equal("ok", c_json.scan(object(257)))
  end)

  it("stops when the visitor says so", function()
    local members, result = c_json.members('{"\\u0061":1,"b":{"c":1},"d":', { b = true }, "c")
    assert.same({ "stopped", "1a 2c" }, { result, keys(members) })
  end)
end)

describe("ids", function()
  it("are strings and integers", function()
    for _, id in ipairs { '"a"', '""', "0", "-7", "123456789012345678901234567890" } do assert.is_true(c_json.is_id(id), id) end
    for _, id in ipairs { "null", "true", "1.0", "1e3", "1E3", "{}", "[]" } do assert.is_false(c_json.is_id(id), id) end
  end)

  it("are the same by type and value", function()
    local same = { { '"a"', '"\\u0061"' }, { '"\\ud834\\udd1e"', '"\u{1d11e}"' }, { '"/"', '"\\/"' }, { "1", "1" }, { "-0", "0" } }
    local different = { { '"1"', "1" }, { "1", "-1" }, { "9007199254740993", "9007199254740992" }, { '"a"', '"A"' },
      { '"a"', '"a\\u0000"' }, { "18446744073709551616", "18446744073709551617" }, { '""', '"0"' }, { "1", "10" } }
    for _, pair in ipairs(same) do
      assert.is_true(c_json.id_eq(pair[1], pair[2]) and c_json.id_eq(pair[2], pair[1]), pair[1])
    end
    for _, pair in ipairs(different) do
      assert.is_false(c_json.id_eq(pair[1], pair[2]) or c_json.id_eq(pair[2], pair[1]), pair[1])
    end
  end)
end)

describe("strings", function()
  it("come back from every escape", function()
    assert.equal('"\\/\b\f\n\r\t\0é\u{20ac}\u{1d11e}z', c_json.unescape [["\"\\\/\b\f\n\r\t\u0000\u00e9\u20AC\uD834\udd1ez"]])
    assert.is_true(c_json.string_is([["\u0061b"]], "ab"))
    assert.is_true(c_json.string_is([["ab"]], "ab"))
    assert.is_false(c_json.string_is([["\u0061b"]], "abc"))
    assert.is_false(c_json.string_is([["\u0061b"]], [[\u0061b]]))
  end)

  it("are written with no more escapes than JSON wants", function()
    assert.equal([["\"\\/\u0000\u001f\b\f\n\r\té]] .. "\127\u{2028}\"", c_json.string('"\\/\0\31\b\f\n\r\té\127\u{2028}'))
  end)

  it("that are not UTF-8 are written as U+FFFD, a byte each", function()
    for before = 0, 20 do
      local a = ("a"):rep(before)
      assert.equal('"' .. a .. "\u{fffd}z\u{fffd}\u{fffd}\u{fffd}" .. '"', c_json.string(a .. "\xffz\xed\xa0\x80"))
    end
  end)

  it("of every byte and length survive being written and read", function()
    local all = {}
    for byte = 0, 127 do all[#all + 1] = string.char(byte) end
    all = table.concat(all) .. "é\u{20ac}\u{1d11e}"
    for length = 0, #all do
      local text = all:sub(1, length)
      if utf8.len(text) then
        assert.equal(text, c_json.unescape(c_json.string(text)))
        assert.equal(text, cjson.decode("[" .. c_json.string(text) .. "]")[1])
      end
    end
  end)
end)

describe("numbers", function()
  it("keep 64 bits", function()
    for _, text in ipairs { "0", "1", "-1", "9223372036854775807", "-9223372036854775808" } do
      assert.equal(text, c_json.int(c_json.read_int(text)))
      assert.equal("integer", math.type(json.decode(text)))
    end
    for _, text in ipairs { "9223372036854775808", "-9223372036854775809", "99999999999999999999999" } do
      assert.is_nil(c_json.read_int(text))
      assert.equal(tonumber(text .. ".0"), json.decode(text))
      assert.equal("float", math.type(json.decode(text)))
    end
  end)

  it("are written as short as reads back, and floats look like floats", function()
    local cases = { [1.0] = "1.0", [0.1] = "0.1", [0.1 + 0.2] = "0.30000000000000004", [-2.5] = "-2.5", [1e15] = "1e+15",
      [1e300] = "1e+300", [0.001] = "0.001", [123456.789] = "123456.789", [2.0 ^ 53] = "9007199254740992.0", [1e-7] = "1e-07",
      [0.0] = "0.0", [999999999999999.0] = "999999999999999.0", [5e-324] = "4.94065645841247e-324" }
    for n, text in pairs(cases) do assert.equal(text, c_json.double(n)) end
    assert.equal("-0.0", c_json.double(-0.0))
    assert.is_nil(c_json.double(0 / 0))
    assert.is_nil(c_json.double(math.huge))
    assert.is_nil(c_json.double(-math.huge))
  end)

  it("agree with the C library, both ways", function()
    math.randomseed(42)
    for i = 1, 6000 do
      local n
      if i % 4 == 0 then
        n = string.unpack("d", string.pack("j", math.random(0)))
      elseif i % 4 == 1 then
        n = math.random(-10 ^ 9 // 1 | 0, 10 ^ 9 // 1 | 0) / 10 ^ math.random(0, 9)
      elseif i % 4 == 2 then
        n = (math.random() - 0.5) * 10 ^ math.random(-8, 20)
      else
        n = math.random(0) / 1
      end
      if n == n and n ~= math.huge and n ~= -math.huge then
        local wanted = ("%.15g"):format(n)
        if tonumber(wanted) ~= n then wanted = ("%.17g"):format(n) end
        if not wanted:find("[.e]") then wanted = wanted .. ".0" end
        assert.equal(wanted, c_json.double(n))
        assert.equal(n, c_json.read_double(wanted))
        local fixed = ("%.6f"):format(n)
        assert.equal(tonumber(fixed), c_json.read_double(fixed))
      end
    end
    assert.equal(math.huge, c_json.read_double("1e999"))
    assert.equal(1.0, c_json.read_double("1." .. ("0"):rep(200)))
    assert.equal(0.0, c_json.read_double("0e99999999999"))
  end)
end)

describe("the cursor", function()
  it("gives every token of a good text", function()
    assert.same({ "{ {", "string a", "[ [", "integer 1", "float -1.5e3", "true true", "] ]", "string+ b\\n", "{ {", "} }",
      "string c", "null null", "string d", "false false", "string e", "string ", "} }", "end " },
      c_json.tokens('{"a" : [1, -1.5e3,true ], "b\\n":{},"c":null, "d":false,"e":""}\n'))
    assert.same({ "integer 12", "end " }, c_json.tokens("12"))
  end)
end)

describe("json.decode", function()
  it("distinguishes null, empty arrays and empty objects", function()
    local value = json.decode('{"a":null,"b":[],"c":{}}')
    assert.equal(json.null, value.a)
    assert.equal(cjson.null, value.a)
    assert.equal('{"a":null,"b":[],"c":{}}', json.encode(value))
  end)

  it("gives nil and the reason", function()
    assert.same({ nil, "unexpected character at byte 2" }, { json.decode("[x]") })
    assert.same({ nil, "text ends too early at byte 1" }, { json.decode("") })
    assert.same({ nil, 'repeated key "a" at byte 2' }, { json.decode('{"a":1,"a":2}') })
  end)

  it("refuses a repeated key wherever it is", function()
    for _, text in ipairs { '{"a":1,"a":1}', '[{"b":[{"a":null,"\\u0061":null}]}]', '{"x":{"a":1,"a":2}}' } do
      local value, why = json.decode(text)
      assert.is_nil(value)
      assert.matches("^repeated key", why)
    end
    local parts = {}
    for i = 1, 100 do parts[i] = ('"k%d":%d'):format(i, i) end
    local many = table.concat(parts, ",")
    assert.equal(100, json.decode("{" .. many .. "}").k100)
    for _, key in ipairs { "k1", "k16", "k17", "k100" } do
      assert.matches('^repeated key "' .. key .. '"', select(2, json.decode("{" .. many .. ',"' .. key .. '":0}')))
    end
  end)

  it("takes arrays and objects of every size around a batch", function()
    for count = 0, 70 do
      local list, object = {}, {}
      for i = 1, count do
        list[i] = tostring(i)
        object[i] = ('"%d":[%d]'):format(i, i)
      end
      local value = json.decode("[" .. table.concat(list, ",") .. "]")
      assert.equal(count, #value)
      for i = 1, count do assert.equal(i, value[i]) end
      assert.equal(json.array_mt, debug.getmetatable(value))
      value = json.decode("{" .. table.concat(object, ",") .. "}")
      for i = 1, count do assert.equal(i, value[tostring(i)][1]) end
      assert.is_nil(value[tostring(count + 1)])
    end
  end)

  it("agrees with lua-cjson", function()
    local text = '{"jsonrpc":"2.0","id":7,"params":{"a":[1,2.5,{"b":"\\u00e9\\n"}],"c":true,"d":null,"e":{"f":[[],[1]]}}}'
    assert.same(cjson.decode(text), json.decode(text))
  end)
end)

describe("json.encode", function()
  local function round(value) return cjson.decode("[" .. json.encode(value) .. "]")[1] end

  it("distinguishes lists from objects", function()
    assert.equal("[1,2,3]", json.encode { 1, 2, 3 })
    assert.equal('{"a":1}', json.encode { a = 1 })
    assert.equal("{}", json.encode {})
    assert.equal("[]", json.encode(json.array()))
    assert.equal("[]", json.encode(json.empty_array))
    assert.equal('{"a":[[]]}', json.encode { a = { json.array {} } })
    assert.equal("{}", json.encode(json.object()))
    assert.equal('[1,"2",true,null]', json.encode(json.array { 1, "2", true, json.null }))
    assert.equal("null", json.encode(nil))
  end)

  it("finds a list in a table of any order", function()
    local list = {}
    for i = 40, 1, -1 do list[i] = { i } end
    for i = 1, 40 do assert.equal(i, round(list)[i][1]) end
    list = { [3] = "c", [1] = "a", [2] = "b" }
    assert.equal('["a","b","c"]', json.encode(list))
  end)

  it("sorts names by their bytes", function()
    assert.equal('{"":1,"A":2,"a":3,"a\\u0000":4,"aa":5,"aaaaaaaa":6,"aaaaaaaaa":7,"aaaaaaaab":8,"é":9}', json.encode {
      ["é"] = 9, aaaaaaaab = 8, aaaaaaaaa = 7, aaaaaaaa = 6, aa = 5, ["a\0"] = 4, a = 3, A = 2, [""] = 1 })
    local many, names = {}, {}
    for i = 1, 500 do
      names[i] = ("name%d"):format(i * 7919 % 500)
      many[names[i]] = i
    end
    local written = {}
    for name in json.encode(many):gmatch('"(name%d+)"') do written[#written + 1] = name end
    table.sort(names)
    assert.same(names, written)
  end)

  it("keeps the order that a metatable gives", function()
    local ordered = setmetatable({ z = 1, name = "n", a = 2, description = "d" }, { __order = { "name", "description", "absent" } })
    assert.equal('{"name":"n","description":"d","a":2,"z":1}', json.encode(ordered))
    assert.equal("{}", json.encode(setmetatable({}, { __order = { "name" } })))
  end)

  it("writes raw JSON as it is, on one line", function()
    assert.equal('{"a":{"b": 1.00, "b":2}}', json.encode { a = json.raw '{"b": 1.00, "b":2}' })
    assert.equal("[1,  2]", json.encode(json.raw "[1,\r\n2]"))
    assert.equal("[1]", tostring(json.raw "[1]"))
    assert.error_matches(function() json.raw "[1" end, "json.raw wants JSON: text ends too early at byte 3")
  end)

  it("says what cannot be encoded, and where", function()
    local loop = { a = { {} } }
    loop.a[1].back = loop
    local deep = {}
    for _ = 1, 128 do deep = { deep } end
    local cases = {
      { print, "a function at the top" },
      { { a = { b = { 1, print } } }, "a function at .a.b[2]" },
      { { ["a b"] = { coroutine.create(print) } }, 'a coroutine at ["a b"][1]' },
      { { a = io.stdout }, "a userdata at .a" },
      { { 0 / 0 }, "a number that is not finite at [1]" },
      { { math.huge }, "a number that is not finite at [1]" },
      { { x = { 1, nil, 3 } }, "a list with holes at .x" },
      { { x = { [2] = 1 } }, "a list with holes at .x" },
      { { x = { 1, a = 2 } }, "a table whose keys are neither all strings nor exactly 1..n, at .x" },
      { { x = { [1.5] = 2 } }, "a table whose keys are neither all strings nor exactly 1..n, at .x" },
      { { x = { [true] = 2 } }, "a table whose keys are neither all strings nor exactly 1..n, at .x" },
      { json.array { a = 1 }, "a table whose keys are neither all strings nor exactly 1..n, at the top" },
      { json.object { 1 }, "a table whose keys are neither all strings nor exactly 1..n, at the top" },
      { loop, "a table inside itself at .a[1].back" },
      { deep, "a table nested deeper than 128 levels at " .. ("[1]"):rep(16) .. "…" },
    }
    for _, case in ipairs(cases) do
      local fine, why = pcall(json.encode, case[1])
      assert.is_false(fine)
      assert.equal("cannot encode " .. case[2], why)
    end
  end)

  it("names the line that called it", function()
    local _, why = pcall(function() return "" .. json.encode(print) end)
    assert.matches("json_spec.lua:%d+: cannot encode a function at the top$", why)
  end)

  it("runs no code of the value's", function()
    local trap = setmetatable({ a = 1 }, { __index = error, __pairs = error, __len = error, __eq = error, __tostring = error })
    assert.equal('{"a":1}', json.encode(trap))
  end)

  it("ends at 32 MiB, however small the table", function()
    if os.getenv "MOONPOOL_EMULATED" then return pending "under qemu the time for it is over first" end
    local bomb = { "x" }
    for _ = 1, 60 do bomb = { bomb, bomb } end
    local _, why = pcall(json.encode, bomb)
    local is_slow = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS" -- then the time for it may be over first
    if not is_slow or not why:find("cannot encode tables that take too long to read", 1, true) then
      assert.matches("cannot encode more than 32 MiB at ", why)
    end
  end)

  it("takes objects of many members", function()
    local many = {}
    for i = 1, 100000 do many["k" .. i] = i end
    local count = 0
    for key, value in pairs(json.decode(json.encode(many))) do
      assert(many[key] == value)
      count = count + 1
    end
    assert.equal(100000, count)
  end)

  it("gives lua-cjson the same value back", function()
    local value = { text = "a\"b\\c\n\0é", list = { 1, 2.5, -3, { x = true } }, flag = false, nested = { a = { b = { c = "d" } } } }
    assert.same(value, round(value))
    assert.equal(json.encode(value), json.encode(json.decode(json.encode(value))))
  end)
end)

describe("the shared metatables", function()
  it("take no fields, so that one script cannot reach another", function()
    assert.error_matches(function() json.array_mt.__index = print end, "fields cannot be added")
    assert.error_matches(function() json.object_mt.__index = print end, "fields cannot be added")
    assert.is_false(getmetatable(json.array_mt))
    assert.is_false(getmetatable(json.raw "1"))
  end)
end)

describe("depth", function()
  local shapes = {
    arrays = function(depth) return ("["):rep(depth) .. ("]"):rep(depth) end,
    objects = function(depth) return ('{"a":'):rep(depth - 1) .. "{}" .. ("}"):rep(depth - 1) end,
    mixed = function(depth)
      return ('[{"a":'):rep(depth // 2) .. (depth % 2 == 1 and "[]" or "0") .. ("}]"):rep(depth // 2)
    end,
    ["unclosed arrays"] = function(depth) return ("["):rep(depth) end,
  }

  for name, shape in pairs(shapes) do
    it("of " .. name .. " is 128 at most", function()
      local whole = name ~= "unclosed arrays"
      for _, depth in ipairs { 64, 128, 129, 1000, 100000 } do
        local text = shape(depth)
        local wanted = whole and depth <= 128 and "ok" or "broken"
        assert.equal(wanted, c_json.scan(text))
        assert.equal(wanted, select(2, c_json.members(text, { a = true })))
        local value, why = json.decode(text)
        if wanted == "ok" then
          assert.equal(text, json.encode(value))
        else
          assert.is_nil(value)
          if depth > 128 then assert.matches("^nested deeper than 128 levels at byte ", why) end
        end
      end
    end)
  end

  it("of 128 needs no more than a small C stack, and more is refused there, too", function()
    local program = [[
      local c_json = require("modules").json
      local json = c_json.lua
      for _, depth in ipairs { 64, 128, 129, 1000, 100000, 2000000 } do
        for _, pair in ipairs { { "[", "]", "1" }, { '{"a":', "}", "1" } } do
          local text = pair[1]:rep(depth) .. pair[3] .. pair[2]:rep(depth)
          assert(c_json.scan(text) == (depth <= 128 and "ok" or "broken"))
          assert(select(2, c_json.members(text, { a = true })) == c_json.scan(text))
          local value = json.decode(text)
          assert((value ~= nil) == (depth <= 128))
          if value then assert(json.encode(value) == text) end
          local nested = 1
          for _ = 1, depth do nested = { a = nested } end
          assert(pcall(json.encode, nested) == (depth <= 128))
        end
      end
      print "fine"
    ]]
    local path = os.tmpname()
    local file <close> = assert(io.open(path, "w"))
    file:write(("package.cpath = %q\n"):format(package.cpath), program)
    file:flush()
    local out <close> = assert(io.popen(("ulimit -s 256; LD_PRELOAD='%s' lua5.4 %s 2>&1"):format(children.preload or "", path)))
    assert.equal("fine\n", out:read("a"))
    os.remove(path)
  end)
end)
