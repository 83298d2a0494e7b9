-- The `t.` types against JSON Schema: their schema in tools/list, and the values that they accept and refuse.
local host = require "spec.helpers.host"

local function start(input)
  return host.start { ["tools/x.lua"] = 'return tool {\n  "X.",\n  input = ' .. input .. ",\n  function() return 'ok' end,\n}" }
end

local function schema_of(vm) return vm:read("tools/list").tools[1].inputSchema end

-- Each row: the type of the field v; its schema, as JSON; valid values; invalid values, with a part of the error.
local cases = {
  enum = { 't.one_of { "a", "b" }', '{"type":"string","enum":["a","b"]}', { "a" }, { c = "must be" } },
  ["an enum of numbers"] = { "t.one_of { 1, 2.5 }", '{"enum":[1,2.5]}', { 2.5 }, {} },
  const = { 't.const("circle", "The shape")', '{"type":"string","description":"The shape","const":"circle"}', { "circle" }, { square = "must be" } },
  anyOf = { "t.any_of { t.string, t.integer }", '{"anyOf":[{"type":"string"},{"type":"integer"}]}', { "a", 1 }, { [true] = "must be" } },
  oneOf = { 't.one_of { t.const("a", { title = "Apple" }), t.const("b", { title = "Pear" }), default = "a" }',
    '{"oneOf":[{"type":"string","title":"Apple","const":"a"},{"type":"string","title":"Pear","const":"b"}],"default":"a"}', { "b" }, { c = "must be" } },
  allOf = { "t.all_of { t.integer, t.integer { step = 3 } }", '{"allOf":[{"type":"integer"},{"type":"integer","multipleOf":3}]}', { 6 },
    { [4] = "multiple of 3" } },
  ["not"] = { 't.string { also = { t.none_of { t.const "root" } } }', '{"type":"string","allOf":[{"not":{"type":"string","const":"root"}}]}', { "ann" },
    { root = "must not" } },
  ["not any of several"] = { "t.none_of { t.string, t.null }", '{"not":{"anyOf":[{"type":"string"},{"type":"null"}]}}', { 1 }, { a = "must not" } },
  ["if, then, else"] = {
    't.object({ kind = t.string, code = t.optional(t.string) }, { also = { t.when(t.object { kind = t.const "card" }, ' ..
      't.object { code = t.string { min = 3 } }, t.object { code = t.string { max = 1 } }) } })',
    nil, { { kind = "card", code = "123" }, { kind = "cash", code = "1" } }, {}, { { kind = "card" }, { kind = "card", code = "1" }, { kind = "cash",
      code = "12" } },
  },
  tuples = { "t.tuple({ t.string, t.integer, t.optional(t.boolean) })",
    '{"type":"array","minItems":2,"maxItems":3,"prefixItems":[{"type":"string"},{"type":"integer"},{"type":"boolean"}]}',
    { { "a", 1 }, { "a", 1, true } }, {}, { { "a" }, { 1, "a" }, { "a", 1, true, 4 } } },
  ["a tuple with a rest"] = { "t.tuple { t.string, rest = t.integer }",
    '{"type":"array","items":{"type":"integer"},"minItems":1,"prefixItems":[{"type":"string"}]}',
    { { "a" }, { "a", 1, 2 } }, {}, { { "a", "b" } } },
  ["pattern, format, lengths"] = { 't.string { min = 1, max = 3, pattern = "^a", format = "email" }',
    '{"type":"string","format":"email","maxLength":3,"minLength":1,"pattern":"^a"}', { "ab" }, {} },
  ["what is inside a string"] = { 't.string { encoding = "base64", mime = "image/png" }',
    '{"type":"string","contentEncoding":"base64","contentMediaType":"image/png"}', { "aa" }, {} },
  ["min, max, exclusive, multipleOf"] = { "t.number { min = 1, max = 9, above = 0, below = 10, step = 0.5 }",
    '{"type":"number","exclusiveMaximum":10,"exclusiveMinimum":0,"maximum":9,"minimum":1,"multipleOf":0.5}', { 1.5 }, { [9.5] = "9" } },
  ["unique, counted items"] = { "t.list(t.integer, { min = 1, max = 2, unique = true })",
    '{"type":"array","items":{"type":"integer"},"maxItems":2,"minItems":1,"uniqueItems":true}', { { 1 } }, {}, { { 1, 1 }, { 1, 2, 3 } } },
  contains = { "t.list(t.integer, { contains = t.const(7), min_contains = 1, max_contains = 2 })",
    '{"type":"array","items":{"type":"integer"},"contains":{"type":"integer","const":7},"maxContains":2,"minContains":1}', { { 1, 7 } }, {}, { { 1 }, { 7,
      7, 7 } } },
  maps = { 't.map(t.number, { keys = t.string { pattern = "^[a-c]+$" }, min = 1, max = 2 })',
    '{"type":"object","additionalProperties":{"type":"number"},"maxProperties":2,"minProperties":1,"propertyNames":{"type":"string","pattern":"^[a-c]+$"}}',
    { { a = 1 } }, {}, { { a = 1, b = 2, c = 3 }, { a = "x" } } },
  patternProperties = { 't.object({ id = t.integer }, { patterns = { ["^x"] = t.boolean } })',
    '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"additionalProperties":false,"patternProperties":{"^x":{"type":"boolean"}}}',
    { { id = 1 } }, {}, { { id = 1, y = 2 } } },
  ["a rest of one type"] = { "t.object({ id = t.integer }, { rest = t.string })",
    '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"],"additionalProperties":{"type":"string"}}', { { id = 1, y = "z" } }, {},
      { { id = 1, y = 2 } } },
  ["open, with counted fields"] = { "t.object({ id = t.optional(t.integer) }, { open = true, min = 1, max = 2 })",
    '{"type":"object","properties":{"id":{"type":"integer"}},"maxProperties":2,"minProperties":1}', { { y = 2 } }, {}, { {}, { a = 1, b = 2, c = 3 } } },
  dependentRequired = { 't.object({ card = t.optional(t.string), code = t.optional(t.string) }, { needs = { card = { "code" } } })',
    '{"type":"object","properties":{"card":{"type":"string"},"code":{"type":"string"}},"additionalProperties":false,"dependentRequired":{"card":["code"]}}',
    { { card = "a", code = "b" }, {} }, {}, { { card = "a" } } },
  nullable = { "t.nullable(t.string { max = 3 })", '{"type":["string","null"],"maxLength":3}', { "abc", host.json.null }, { [1] = "must be" } },
  ["a nullable enum"] = { 't.nullable(t.one_of { "a" })', '{"type":["string","null"],"enum":["a",null]}', { "a", host.json.null }, { b = "must be" } },
  ["a nullable of several"] = { "t.nullable(t.any_of { t.string, t.integer })",
    '{"anyOf":[{"anyOf":[{"type":"string"},{"type":"integer"}]},{"type":"null"}]}',
    { "a", host.json.null }, {} },
  ["words about it"] = { 't.string { "About it", title = "It", examples = { "a" }, deprecated = true, read_only = true, write_only = false }',
    '{"type":"string","title":"It","description":"About it","deprecated":true,"examples":["a"],"readOnly":true,"writeOnly":false}', { "a" }, {} },
  ["a schema as it is"] = { 't.schema({ type = "integer", ["not"] = { multipleOf = 2 } }, "Odd")',
    '{"type":"integer","description":"Odd","not":{"multipleOf":2}}', { 3 }, { [4] = "must not" } },
  anything = { "t.any", "{}", { 1, "a", { 1 } }, {} },
}

local function wrapped(value) return { v = value } end

describe("a type", function()
  after_each(host.stop)

  for name, case in pairs(cases) do
    it("says " .. name, function()
      local vm = start("{ v = " .. case[1] .. " }")
      assert.is_nil(vm.errors, vm.errors and table.concat(vm.errors, "\n"))
      local schema = schema_of(vm)
      if case[2] then assert.same(host.json.decode(case[2]), schema.properties.v) end
      for _, value in ipairs(case[3]) do
        local result = vm:tool("x", wrapped(value))
        assert.equal("ok", result.content[1].text)
      end
      for value, why in pairs(case[4]) do
        local result = vm:tool("x", wrapped(value))
        assert.truthy(result.isError and result.content[1].text:find(why, 1, true), result.content[1].text)
      end
      for _, value in ipairs(case[5] or {}) do assert.is_true(vm:tool("x", wrapped(value)).isError, host.json.encode(value)) end
    end)
  end

  it("may be recursive, and is written once", function()
    local vm = start('t.define("tree", function(tree) return t.object { name = t.string, leaves = t.optional(t.list(tree)), ' ..
      'best = tree { "The best", optional = true } } end)')
    assert.is_nil(vm.errors)
    local schema = schema_of(vm)
    assert.equal("object", schema.type)
    assert.same({ ["$ref"] = "#/$defs/tree" }, schema.properties.leaves.items)
    assert.same({ ["$ref"] = "#/$defs/tree", description = "The best" }, schema.properties.best)
    assert.same({ "name" }, schema.required)
    assert.same({ "name" }, schema["$defs"].tree.required)
    assert.equal("ok", vm:tool("x", { name = "a", leaves = { { name = "b", leaves = { { name = "c" } } } } }).content[1].text)
    local refused = vm:tool("x", { name = "a", leaves = { { name = "b", leaves = { { name = 1 } } } } })
    assert.truthy(refused.isError and refused.content[1].text:find("leaves[0].leaves[0].name", 1,
      true) or refused.content[1].text:find("/leaves/0/leaves/0/name", 1, true), refused.content[1].text)
  end)

  it("may be used in several places, and two of one name are two", function()
    local vm = start('(function() local a, b = t.define("p", t.object { x = t.number }), t.define("p", t.object { y = t.number }) ' ..
      'return { from = a, to = a { optional = true }, other = b } end)()')
    assert.is_nil(vm.errors)
    local schema = schema_of(vm)
    assert.same({ "from", "other" }, schema.required)
    assert.not_equal(schema.properties.from["$ref"], schema.properties.other["$ref"])
    assert.same(schema.properties.from, schema.properties.to)
    assert.equal("ok", vm:tool("x", { from = { x = 1 }, other = { y = 1 } }).content[1].text)
    assert.is_true(vm:tool("x", { from = { x = 1 }, other = { x = 1 } }).isError)
  end)

  it("that may be one of several objects is an object, as clients want it", function()
    for _, kind in ipairs { "one_of", "any_of", "all_of" } do
      local vm = start("t." .. kind .. ' { t.object { kind = t.const "a" }, t.object { size = t.integer } }')
      assert.is_nil(vm.errors, vm.errors and table.concat(vm.errors, "\n"))
      assert.equal("object", schema_of(vm).type)
      assert.equal("ok", vm:tool("x", kind == "all_of" and { kind = "a", size = 1 } or { kind = "a" }).content[1].text)
      assert.is_true(vm:tool("x", { kind = "b" }).isError)
    end
  end)

  it("left out in one place is not left out in another", function()
    local vm = start "(function() local name = t.string return { a = name, b = t.optional(name) } end)()"
    assert.same({ "a" }, schema_of(vm).required)
  end)

  for text, why in pairs {
    ["{ v = t.const() }"] = "t.const needs a value",
    ["{ v = t.one_of { t.string, 1 } }"] = "t.one_of: choice 2 is not a type",
    ["{ v = t.one_of { 1, t.string } }"] = "t.one_of: choice 2 is not a value",
    ["{ v = t.when(t.string) }"] = "t.when needs two or three types: a condition",
    ["{ v = t.define(7, t.string) }"] = "t.define needs a name",
    ['{ v = t.define("a", function() end) }'] = "t.define: the function of 'a' returns no type of its own",
    ['{ v = t.define("a", function(a) return a end) }'] = "t.define: the function of 'a' returns no type of its own",
    ["{ v = t.list(t.string, { contains = 1 }) }"] = "t.list: 'contains' must be a type, got a number",
    ["{ v = t.string { also = t.string } }"] = "t.string: 'also' must be a list of types, got a type",
    ["{ v = t.object({}, { needs = { a = 1 } }) }"] = "t.object: 'needs' must be a table of lists of names, got a table",
    ["{ v = t.map(t.any, { patterns = { t.any } }) }"] = "t.map: 'patterns' must be a table of types, got a table",
    ["{ v = t.one_of { 1, exampels = {} } }"] = "t.one_of has no option 'exampels'",
    ["{ v = t.nullabel(t.string) }"] = "there is no type t.nullabel",
  } do
    it("is refused at its line: " .. text, function()
      local vm = start(text)
      assert.truthy(vm.errors and vm.errors[1]:find("scripts/tools/x.lua:3: " .. why, 1, true), vm.errors and vm.errors[1])
    end)
  end
end)
