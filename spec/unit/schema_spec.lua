-- Promises of the JSON Schema compiler beyond the test suite: its error texts, what it refuses, its cost.
local library, why = require "spec.helpers.library"()

describe("a schema", function()
  if not library then return pending("needs the C modules: " .. why) end
  local json, schema, regex = library.json, library.schema, library.regex

  local function compile(source, options)
    if type(source) == "string" then source = assert(json.decode(source)) end
    return schema.compile(source, options)
  end

  -- "path: message", or nil if the value is valid.
  local function complaint(source, value, options)
    local check = assert(compile(source, options))
    if type(value) == "string" then value = assert(json.decode(value)) end
    local good, fault = check(value)
    if good then return nil end
    return fault.path .. ": " .. fault.message, fault.keyword
  end

  local function refusal(source, options)
    local check, reason = compile(source, options)
    assert.is_nil(check)
    return reason
  end

  describe("says what is wrong with a value", function()
    local cases = {
      { '{"type":"number"}', '"x"', ": must be a number, got a string" },
      { '{"type":"integer"}', "1.5", ": must be an integer, got 1.5" },
      { '{"type":"integer"}', "null", ": must be an integer, got null" },
      { '{"type":["string","integer","null"]}', "true", ": must be a string, an integer or null, got a boolean" },
      { '{"type":"object"}', "[]", ": must be an object, got an array" },
      { '{"enum":["celsius","fahrenheit"]}', '"kelvin"', ': must be one of "celsius", "fahrenheit"' },
      { '{"enum":[]}', "1", ": is not allowed" },
      { '{"const":{"b":1,"a":[null]}}', "{}", ': must be {"a":[null],"b":1}' },
      { '{"minimum":5}', "3", ": must be at least 5, got 3" },
      { '{"exclusiveMaximum":5}', "5", ": must be less than 5, got 5" },
      { '{"multipleOf":0.01}', "0.125", ": must be a multiple of 0.01, got 0.125" },
      { '{"minLength":1}', '""', ": must have at least 1 character, got 0" },
      { '{"maxLength":2}', '"äöü"', ": must have at most 2 characters, got 3" },
      { '{"pattern":"^a\\"+$"}', '"b"', ': must match the pattern "^a\\"+$"' },
      { '{"minItems":2}', "[1]", ": must have at least 2 items, got 1" },
      { '{"uniqueItems":true}', '[1,"1",true,{"a":1,"b":[]},{"b":[],"a":1.0}]', ": must not have equal items, but items 3 and 4 are equal" },
      { '{"contains":{"const":1}}', "[2]", ": must have at least 1 item of the kind under 'contains', got 0" },
      { '{"required":["a","b"]}', '{"a":null}', ": must have property 'b'" },
      { '{"dependentRequired":{"a":["b"]}}', '{"a":1}', ": must have property 'b' when it has 'a'" },
      { '{"minProperties":1}', "{}", ": must have at least 1 property, got 0" },
      { '{"propertyNames":{"maxLength":1}}', '{"a":1,"bb":1}',
        ": must not have property 'bb': the name must have at most 1 character, got 2" },
      { '{"propertyNames":false}', '{"a":1}', ": must not have property 'a': the name is not allowed" },
      { '{"properties":{"a":true,"b":true},"additionalProperties":false}', '{"d":1,"c":1,"a":1}',
        ": must not have property 'c'; it may have 'a', 'b'" },
      { '{"patternProperties":{"^x":true},"additionalProperties":false}', '{"x":1,"z":1,"y":1}', ": must not have property 'y'" },
      { '{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}', '{"a":1,"b":1}', ": must not have property 'b'" },
      { '{"not":{"type":"null"}}', "null", ": must not fit the form under 'not'" },
      { '{"properties":{"a":false}}', '{"a":1}', "/a: is not allowed" },
      { false, "1", ": is not allowed" },
      { '{"properties":{"a":{"items":{"properties":{"b/~":{"type":"string"}}}}}}', '{"a":[{},{"b/~":1}]}',
        "/a/1/b~1~0: must be a string, got a number" },
      { '{"additionalProperties":{"type":"string"}}', '{"a":"","c":1,"b":1}', "/b: must be a string, got a number" },
      { '{"if":{"required":["a"]},"then":{"required":["b"]}}', '{"a":1}', ": must have property 'b'" },
    }
    for _, case in ipairs(cases) do
      it(case[3], function() assert.equal(case[3], (complaint(case[1], case[2]))) end)
    end

    it("with the keyword that failed", function()
      assert.equal("minItems", select(2, complaint('{"properties":{"a":{"minItems":2}}}', '{"a":[1]}')))
    end)
  end)

  describe("with several forms", function()
    it("joins what each wants", function()
      assert.equal(": must be a string or null, got a number", (complaint('{"anyOf":[{"type":"string"},{"type":"null"}]}', "1")))
      assert.equal(': must be "a" or "b"', (complaint('{"oneOf":[{"const":"a"},{"const":"b"}]}', "1")))
      assert.equal("/x: must be a number or \"auto\", got a boolean",
        (complaint('{"properties":{"x":{"anyOf":[{"type":"number"},{"const":"auto"}]}}}', '{"x":true}')))
    end)

    it("says the same of each value, whatever was refused before it", function()
      local source = '{"anyOf":[{"type":"string","maxLength":3},{"type":"integer"},{"const":2.5},{"type":"array","items":{"type":"null"}}]}'
      local function said(check, value)
        local good, fault = check(value)
        return good and "fits" or fault.path .. ": " .. fault.message
      end
      local check = assert(compile(source))
      local values = { true, "long", 1.5, json.array { 1 }, false, "wrong", 1.25, json.array { true }, true, 2.5, "abc", 3 }
      for _ = 1, 2 do
        for _, value in ipairs(values) do assert.equal(said(assert(compile(source)), value), said(check, value)) end
      end
      assert.equal("fits", said(check, 2.5))
      local either = '{"%s":[{"type":"string"},{"type":"integer"}]}'
      local within = assert(compile(('{"items":%s,"not":{"items":%s,"minItems":3}}'):format(either:format "anyOf", either:format "oneOf")))
      for _ = 1, 2 do
        assert.equal("/1: must be a string or an integer, got a boolean", said(within, json.array { "a", true }))
        assert.equal("fits", said(within, json.array { "a", 1 }))
        assert.equal(": must not fit the form under 'not'", said(within, json.array { "a", 1, 2 }))
      end
    end)

    it("explains the one that was meant", function()
      local shapes = [[{"oneOf":[
        {"properties":{"kind":{"const":"circle"},"radius":{"type":"number"}},"required":["kind","radius"]},
        {"properties":{"kind":{"const":"square"},"side":{"type":"number"}},"required":["kind","side"]}]}]]
      assert.equal(": must fit one of 2 forms; nearest is form 2, but it must have property 'side'",
        (complaint(shapes, '{"kind":"square"}')))
      assert.equal(": must fit one of 2 forms; nearest is form 1, but /radius must be a number, got a string",
        (complaint(shapes, '{"kind":"circle","radius":"1"}')))
    end)

    it("says when more than one fits", function()
      assert.equal(": must fit only one of 3 forms, but fits forms 1 and 3",
        (complaint('{"oneOf":[{"minimum":1},{"type":"string"},true]}', "2")))
    end)
  end)

  describe("reads values as handlers make them", function()
    it("plain sequences are arrays, empty tables objects", function()
      assert.is_nil(complaint('{"type":"array","items":{"type":"integer"}}', { 1, 2.0 }))
      assert.is_nil(complaint('{"type":"object"}', {}))
      assert.is_nil(complaint('{"type":"object"}', json.object {}))
      assert.equal(": must be an array, got an object", (complaint('{"type":"array"}', {})))
    end)

    it("json.empty_array is an array at every place", function()
      assert.is_nil(complaint('{"type":"array","items":false,"maxItems":0,"unevaluatedItems":false}', json.empty_array))
      assert.is_nil(complaint('{"properties":{"a":{"const":[]}}}', { a = json.empty_array }))
      assert.is_nil(complaint('{"const":{"a":[]}}', { a = json.empty_array }))
      assert.truthy(complaint('{"uniqueItems":true}', { json.empty_array, json.array {} }))
    end)

    it("what JSON cannot say is never good", function()
      assert.equal(": must be an object, got something that is no JSON value", (complaint('{"type":"object"}', print)))
      assert.equal("/a: must be a JSON value", (complaint('{"properties":{"a":{"minimum":1}}}', { a = print })))
      assert.equal(": must be an integer, got inf", (complaint('{"type":"integer"}', math.huge)))
    end)

    it("a table that holds itself does no harm", function()
      local round = {}
      round.next, round[1] = round, nil
      assert.equal(": makes its schema refer to itself without end",
        (complaint('{"properties":{"next":{"$ref":"#"}}}', round)))
      assert.equal(": makes its schema refer to itself without end",
        (complaint('{"additionalProperties":{"$ref":"#"},"propertyNames":{"minLength":1}}', round)))
      assert.truthy(complaint('{"uniqueItems":true}', { round, {} }))
      assert.truthy(complaint('{"const":{"next":{"next":1}}}', round))
    end)
  end)

  it("counts multiples in decimal", function()
    local good = { { 0.01, 4.35 }, { 0.01, 1e308 }, { 0.5, 1e308 }, { 0.1, 0.3 }, { 1e-8, 12391239123 }, { 0.0001, 0.0075 },
      { 3, -9 }, { 0.1, -0.3 }, { 1e300, 3e300 }, { 2.0, 4 }, { 0.3, 0 } }
    local bad = { { 0.01, 4.351 }, { 0.123456789, 1e308 }, { 0.0001, 0.00751 }, { 3, 1e300 }, { 1e308, 1 }, { 0.3, 1 },
      { 2, math.huge } }
    for _, pair in ipairs(good) do assert.is_nil(complaint({ multipleOf = pair[1] }, pair[2])) end
    for _, pair in ipairs(bad) do assert.truthy(complaint({ multipleOf = pair[1] }, pair[2])) end
  end)

  describe("is refused when", function()
    local cases = {
      { "a type is unknown", '{"properties":{"a":{"type":"strng"}}}',
        'there is no type "strng"; types are string, number, integer, boolean, object, array, null (#/properties/a/type)' },
      { "it is no schema", '{"items":"string"}', "a schema must be an object or a boolean, not a string (#/items)" },
      { "a list stands where one schema belongs", '{"items":[{}]}', "a schema must be an object or a boolean, not an array (#/items)" },
      { "a bound is no number", '{"minimum":"1"}', "must be a number, not a string (#/minimum)" },
      { "a size is negative", '{"minLength":-1}', "must be a whole number, 0 or more, not -1 (#/minLength)" },
      { "required is no list", '{"properties":{"a/b":{"required":true}}}', "must be a list of names, not a boolean (#/properties/a~1b/required)" },
      { "required is false", '{"required":false}', "must be a list of names, not a boolean (#/required)" },
      { "a list of forms is empty", '{"anyOf":[]}', "must have at least one schema (#/anyOf)" },
      { "a pattern is broken", '{"pattern":"a("}', 'pattern "a(": missing closing parenthesis at byte 3 (#/pattern)' },
      { "a reference leads outside", '{"properties":{"a":{"$ref":"https://example.com/s.json"}}}',
        '"https://example.com/s.json" is not part of this schema, and schemas are never fetched (#/properties/a/$ref)' },
      { "a pointer leads nowhere", '{"$ref":"#/$defs/x"}', "the reference points at nothing (#/$ref)" },
      { "a pointer leads to no schema", '{"$ref":"#/title","title":"x"}', "a schema must be an object or a boolean, not a string (#/title)" },
      { "an anchor is missing", '{"$ref":"#x"}', 'there is no anchor "x" (#/$ref)' },
      { "an anchor is there twice", '{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}', 'two schemas have the anchor "x" (#/$defs/b)' },
      { "an $id is there twice", '{"$defs":{"a":{"$id":"x:y"},"b":{"$id":"x:y"}}}', 'two schemas have the $id "x:y" (#/$defs/b)' },
      { "its dialect is unknown", '{"$schema":"http://json-schema.org/draft-04/schema#"}',
        'dialect "http://json-schema.org/draft-04/schema#" is not known; known are 2020-12 and draft-07 (#)' },
    }
    for _, case in ipairs(cases) do
      it(case[1], function() assert.equal(case[3], refusal(case[2])) end)
    end

    it("it is too deep or too large", function()
      local deep, wide = true, { properties = {} }
      for _ = 1, 64 do deep = { ["not"] = deep } end
      assert.truthy(compile(deep))
      assert.matches("deeper than 64 levels", refusal { ["not"] = deep }, 1, true)
      for i = 1, 10000 do wide.properties["p" .. i] = {} end
      assert.matches("more than 10000 schemas", refusal(wide), 1, true)
    end)

    it("references go round (B-121)", function()
      for _, text in ipairs {
        '{"$ref":"#"}', '{"not":{"$ref":"#"}}', '{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}',
        '{"$defs":{"a":{"allOf":[{},{"if":true,"then":{"$ref":"#/$defs/b"}}]},"b":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}',
      } do
        assert.matches("the schema leads to itself in a circle: no value would ever be checked %(#", refusal(text))
      end
      assert.truthy(compile '{"properties":{"a":{"$ref":"#"}},"items":{"$ref":"#"},"additionalProperties":{"$ref":"#"}}')
    end)

    it("too many schemas apply to one value (B-121)", function()
      for _, word in ipairs { "allOf", "anyOf", "oneOf" } do
        local source = { ["$defs"] = { l0 = { type = "integer" } }, ["$ref"] = "#/$defs/l20" }
        for i = 1, 20 do
          local below = "#/$defs/l" .. i - 1
          source["$defs"]["l" .. i] = { [word] = { { ["$ref"] = below }, { title = "again", ["$ref"] = below } } }
        end
        assert.matches("more than 10000 schemas apply to one value", refusal(source), 1, true)
      end
    end)

    it("a vocabulary it needs is unknown", function()
      local resources = { ["x:meta"] = { ["$vocabulary"] = { ["x:vocabulary"] = true } } }
      assert.equal('vocabulary "x:vocabulary" is not known (#)', refusal({ ["$schema"] = "x:meta" }, { resources = resources }))
    end)
  end)

  describe("finds what it refers to", function()
    it("among the resources it was given", function()
      local options = { resources = { ["https://example.com/s.json"] = { type = "string" } } }
      assert.equal(": must be a string, got a number", (complaint('{"$ref":"https://example.com/s.json"}', 1, options)))
    end)

    it("in the meta-schemas", function()
      assert.equal("/minLength: must be at least 0, got -1",
        (complaint('{"$ref":"https://json-schema.org/draft/2020-12/schema"}', '{"minLength":-1}')))
      assert.truthy(complaint('{"$ref":"http://json-schema.org/draft-07/schema#"}', '{"items":[{"type":"strng"}]}'))
      assert.is_nil(complaint('{"$ref":"https://json-schema.org/draft-07/schema"}', '{"items":[{"type":"string"}]}'))
    end)

    it("through tables that Lua shares", function()
      local name = { type = "string" }
      assert.equal("/b: must be a string, got a number", (complaint({ properties = { a = name, b = name } }, { a = "", b = 1 })))
      local tree = { properties = {}, additionalProperties = false }
      tree.properties.left = tree
      assert.equal("/left/left: must not have property 'x'; it may have 'left'", (complaint(tree, { left = { left = { x = 1 } } })))
    end)
  end)

  it("says what it is in: draft-07 by option or $schema", function()
    local tuple = '{"items":[{"type":"string"}],"additionalItems":false}'
    assert.equal("/1: is not allowed", (complaint(tuple, '["a",1]', { default_dialect = "draft-07" })))
    assert.equal("/0: must be a string, got a number",
      (complaint('{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}]}', "[1]")))
    assert.is_nil(complaint('{"$ref":"#/definitions/a","type":"null","definitions":{"a":{"type":"string"}}}', '"x"',
      { default_dialect = "draft-07" }))
  end)

  describe("costs", function()
    local flat = [[{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"string","minLength":1},
      "c":{"enum":["x","y"]},"d":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}]]

    it("no memory when all is well", function()
      local check = assert(compile(flat))
      local value = { a = 1, b = "x", c = "y", d = json.null }
      assert.is_true(check(value))
      collectgarbage()
      collectgarbage "stop"
      local before = collectgarbage "count"
      for _ = 1, 1000 do check(value) end
      local after = collectgarbage "count"
      collectgarbage "restart"
      assert.is_true(after - before < 1, ("%.1f KiB"):format(after - before))
    end)

    local function seconds(task)
      local start = os.clock()
      task()
      return os.clock() - start
    end

    it("a bounded number of steps, few for a small value, and no `not` turns that around", function()
      local again = { ["$ref"] = "#/$defs/a" }
      local source = { ["$defs"] = { a = { anyOf = {
        { properties = { x = again }, required = { "y" } }, { properties = { x = { title = "again", ["$ref"] = "#/$defs/a" } }, required = { "z" } },
      } } }, ["$ref"] = "#/$defs/a" }
      local value = {}
      for _ = 1, 60 do value = { x = value } end
      for _, wrapped in ipairs { source, { ["not"] = { ["not"] = source } } } do
        wrapped["$defs"] = source["$defs"]
        local text, keyword
        assert.is_true(seconds(function() text, keyword = complaint(wrapped, value) end) < 0.5)
        assert.same({ ": takes too long to check against its schema", "limit" }, { text, keyword })
      end
    end)

    it("more for a large value", function()
      local list = {}
      for i = 1, 60000 do list[i] = { a = i, b = "x" } end
      local check = assert(compile '{"items":{"properties":{"a":{"type":"number"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}}')
      assert.is_true(check(list))
    end)

    it("no more for large values under many schemas", function()
      local names, texts, object = {}, {}, {}
      for i = 1, 2000 do
        names[i] = { propertyNames = { minLength = 1 } }
        texts[i] = { maxLength = 1e9 + i }
      end
      for i = 1, 20000 do object["k" .. i] = i end
      for _, case in ipairs { { names, object }, { texts, ("x"):rep(1000000) } } do
        for _, word in ipairs { "allOf", "oneOf" } do
          local keyword
          assert.is_true(seconds(function() keyword = select(2, complaint({ additionalProperties = { [word] = case[1] } }, { x = case[2] })) end) < 5)
          assert.is_true(keyword == "limit" or word == "oneOf" and keyword == "oneOf", keyword)
        end
      end
    end)

    it("little more for an explanation, however deep the forms", function()
      local forms, value = { type = "string" }, 1
      for i = 1, 20 do
        forms = { properties = { x = { anyOf = { forms, { type = "null" }, { const = "c" .. i } } } }, additionalProperties = { ["not"] = {} } }
        value = { x = value }
      end
      assert.is_true(seconds(function() assert.truthy(complaint(forms, value)) end) < 1)
    end)

    it("time in proportion for many items that must be unique", function()
      local rows = {}
      for i = 1, 5000 do rows[i] = { id = i, tags = { "a", "b" } } end
      local check = assert(compile { uniqueItems = true })
      assert.is_true(seconds(function() assert.is_true(check(rows)) end) < 2)
    end)

    it("little for a pattern and a text that do not go together", function()
      local check = assert(compile { ["not"] = { pattern = "^(a+)+$" } })
      local good, fault
      assert.is_true(seconds(function() good, fault = check(("a"):rep(50000) .. "!") end) < 1)
      assert.is_nil(good)
      assert.same({ 'takes too long to match against the pattern "^(a+)+$"', "limit" }, { fault.message, fault.keyword })
    end)
  end)

  it("stays usable after a value that raised an error", function()
    local check = assert(compile { properties = { a = { type = "number" } } })
    local trap = setmetatable({}, { __index = function() error "sprung" end })
    assert.has_error(function() check(trap) end)
    assert.is_true(check { a = 1 })
  end)

  describe("has regular expressions that", function()
    local function test(pattern, text) return assert(regex.compile(pattern)):test(text) end

    it("follow ECMA-262", function()
      assert.is_true(test("^\\p{Letter}+$", "Zoë"))
      assert.is_true(test("^[\\p{General_Category=Uppercase_Letter}]\\P{Nd}$", "Éx"))
      assert.is_true(test("^\\u00e9\\u{1F600}$", "é😀"))
      assert.is_true(test("^[^]$", "\n"))
      assert.is_false(test("^\\d$", "٣"))
      assert.is_false(test("a$", "a\n"))
      assert.is_true(test("^.$", "😀"))
    end)

    it("search large texts", function()
      assert.is_true(test("[fg]oo$", ("é"):rep(1000000) .. "goo"))
      assert.is_true(test("(?i)foo", ("é"):rep(1000000) .. "FOO"))
      assert.is_true(test("É", ("é"):rep(10000) .. "É"))
    end)

    it("give up on what takes too long", function()
      assert.same({ nil, "limit" }, { test("^(a|b)*c", ("ab"):rep(50000)) })
      assert.same({ nil, "limit" }, { test("\\s+$", (" "):rep(1000000) .. "x") })
      assert.same({ nil, "not UTF-8" }, { test("a", "\xff") })
      assert.same({ nil, "the pattern is longer than 4096 bytes" }, { regex.compile(("a"):rep(5000)) })
    end)
  end)
end)
