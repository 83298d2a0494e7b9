-- Arguments that do not fit: C finds which ones, where it knows the schema, and Lua the words. Each call is sent to two
-- gateways, with plans and without, and answers, audit lines and metrics have the same bytes.
local audit_lines = require "spec.helpers.audit_lines"
local gateway = require "spec.helpers.gateway"
local wait = require "spec.helpers.wait"

local scripts = {
  ["tools/all.lua"] = [[return tool { "All.", input = {
    n = t.optional(t.number { min = 1, max = 9 }), i = t.optional(t.integer), s = t.optional(t.string), e = t.optional(t.one_of { "a", "b" }),
    b = t.optional(t.boolean), o = t.optional(t.object { x = t.number, y = t.optional(t.string) }),
  }, function() return "fits" end }]],
  ["tools/pair.lua"] = "--- Two.\n---@param a number\n---@param second_2 string\nreturn function(a, second_2) return second_2 .. a end",
  ["tools/odd.lua"] = [[return tool { "Odd.", input = { ["a.b"] = t.number, _x = t.optional(t.number), ["7"] = t.optional(t.number) },
    function() return "fits" end }]],
  ["tools/open.lua"] = [[return tool { "Open.", input = t.schema { type = "object", properties = { a = { type = "number" } }, required = { "a" } },
    function() return "fits" end }]],
  ["tools/hard.lua"] = [[return tool { "Hard.", input = { list = t.list(t.number), a = t.number }, function() return "fits" end }]],
  -- limits of which C knows all
  ["tools/known.lua"] = [[return tool { "Known.", input = t.schema { type = "object", additionalProperties = false, required = { "z", "a" }, properties = {
    a = { type = "integer", minimum = 2, exclusiveMaximum = 5 }, z = { type = "number", exclusiveMinimum = 0.5, maximum = 1e3 },
    s = { type = "string", minLength = 2, maxLength = 4, enum = { "ab", "abc", "abcdef" } }, ["3"] = { type = "boolean" },
    o = { type = "object", additionalProperties = false, required = { "x" }, properties = { x = { type = "number", minimum = 1 },
    ["9"] = { type = "string" } } },
    long_name = { type = "string" } } }, function() return "fits" end }]],
  ["tools/many.lua"] = [[local fields = {}
    for i = 1, 14 do fields["f" .. i] = t.optional(t.integer { min = i }) end
    return tool { "Many.", input = fields, function() return "fits" end }]],
  -- keywords of which C knows none
  ["tools/keywords.lua"] = [[local integer = { type = "integer", maximum = 9 }
    return tool { "Keywords.", input = t.schema { type = "object", additionalProperties = false,
      ["$defs"] = { short = { type = "string", maxLength = 2 } }, properties = {
        multiple = { type = "number", multipleOf = 3 }, const = { const = 5 }, enum = { enum = { 1, "b", t.null } }, pattern = { type = "string",
        pattern = "^a+$" },
        items = { type = "array", items = integer, minItems = 1, maxItems = 3, uniqueItems = true }, prefix = { prefixItems = { integer,
        { type = "string" } } },
        contains = { contains = integer, maxContains = 1 }, deep = { properties = { a = { properties = { ["b/c"] = { items = integer } } } } },
        names = { propertyNames = { maxLength = 2 }, minProperties = 1, maxProperties = 2 }, rest = { type = "object", additionalProperties = integer },
        by_pattern = { patternProperties = { ["^x"] = integer }, additionalProperties = false }, needs = { dependentRequired = { a = { "b" } } },
        any = { anyOf = { { type = "string" }, { type = "object", properties = { k = { const = "z" } }, required = { "k" } } } },
        one = { oneOf = { integer, { minimum = 5 } } }, all = { allOf = { integer, { minimum = 5 } } }, ["not"] = { ["not"] = { type = "string" } },
        ["if"] = { ["if"] = { type = "string" }, ["then"] = { maxLength = 1 }, ["else"] = integer }, ref = { ["$ref"] = "#/$defs/short" },
        either = { type = { "string", "integer" } }, never = false, left = { allOf = { { properties = { a = true } } }, unevaluatedProperties = false } } },
      function() return "fits" end }]],
  -- lists and objects inside objects, in which C finds the value
  ["tools/tree.lua"] = [[local short = { type = "string", maxLength = 2 }
    local order = { type = "object", additionalProperties = false, required = { "id" }, properties = { id = { type = "integer", minimum = 1 },
      to = { type = "object", required = { "y" }, properties = { x = { type = "number" }, y = { type = "array", items = short }, ["7"] = short } },
      note = short, twice = { type = "object", properties = { note = short, again = short } } } }
    return tool { "Tree.", input = t.schema { type = "object", properties = { orders = { type = "array", items = order },
      few = { type = "array", items = { type = "integer" }, minItems = 1, maxItems = 3 }, grid = { type = "array", items = { type = "array",
      items = { type = "boolean" } } }, one = order, ["5"] = { type = "array", items = short }, n = { type = "number" },
      filled = { type = "array", items = { type = "object", properties = { a = { type = "integer", default = 4 } } } } } },
      function(args) return args end }]],
  -- the same beside what C does not know
  ["tools/partly.lua"] = [[return tool { "Partly.", input = t.schema { type = "object", properties = { code = { type = "string", pattern = "^a+$" },
    list = { type = "array", items = { type = "object", properties = { x = { type = "integer" } } } }, n = { type = "integer", default = 3 } } },
    function(args) return args end }]],
  -- checks that end without a result, since they take too long
  ["tools/endless.lua"] = [[local slow = { pattern = "^(a+)+$" }
    return tool { "Endless.", input = t.schema { type = "object", required = { "must" }, properties = { must = { type = "integer" }, slow = slow,
    ["not"] = { ["not"] = slow }, a_list = { items = { type = "integer" } }, z_list = { items = { type = "integer" } } } },
    function() return "fits" end }]],
  -- default values beside what C does not know
  ["tools/filled.lua"] = [[return tool { "Filled.", input = t.schema { type = "object", properties = { n = { type = "integer", default = 3 },
    list = { type = "array", items = { type = "integer" } }, o = { type = "object", properties = { x = { default = 4 }, y = { type = "array" } } } } },
    function(args) return args end }]],
  -- keywords at the root
  ["tools/root.lua"] = [[return tool { "Root.", input = t.schema { type = "object", minProperties = 1, required = { "a" },
  properties = { a = { type = "number" },
    b = { type = "string" } }, patternProperties = { ["^x"] = { type = "integer" } }, additionalProperties = { type = "boolean" },
    dependentSchemas = { b = { properties = { a = { minimum = 5 } } } } }, function() return "fits" end }]],
  ["policy/some.lua"] = [[return policy { tools = { "pair" }, function(call, next) return next(call) end }]],
}

local VALUES <const> = {
  "1", "-1", "0", "-0", "10", "1.0", "1.5", "1e2", "123456789012345", "1234567890123456", "12345678901234567890", '"x"', '""', '"a"', '"a/b"',
  '"a\\nb"',
  '"\\u0041"', '"é"', '"say \\"x\\""',
  '"\127"', '"' .. ("y"):rep(58) .. '"', '"' .. ("y"):rep(59) .. '"', '"' .. ("y"):rep(300) .. '"', "true", "false", "null",
  "[]", "[1]", "[null]", "{}", '{"x":1}', '{"x":"1"}', '{"x":null}', '{"x":1,"y":null}', '{"x":1,"z":2}',
}

local calls = {}
for _, name in ipairs { "n", "i", "s", "e", "b", "o" } do
  for _, value in ipairs(VALUES) do
    calls[#calls + 1] = { "all", ('{"%s":%s}'):format(name, value) }
    calls[#calls + 1] = { "all", ('{"b":true,"%s":%s}'):format(name == "b" and "i" or name, value) }
  end
end
for _, arguments in ipairs {
  "{}", '{"a":1}', '{"second_2":"x"}', '{"a":"1"}', '{"a":"1","second_2":"x"}', '{"a":1,"second_2":2}', '{"a":"1","second_2":2}',
  '{"a":1,"second_2":"x","c":1}',
  '{"a":1,"second":"x"}', '{"second_2":2}', '{"a":null,"second_2":"x"}', '{"a":{"z":null},"second_2":"x"}',
} do calls[#calls + 1] = { "pair", arguments } end
for _, arguments in ipairs { "{}", '{"a.b":"x"}', '{"a.b":1,"_x":"y"}', '{"a.b":1,"7":"y"}', '{"a.b":1}', '{"a.b":true}' } do
  calls[#calls + 1] = { "odd", arguments }
end
for _, arguments in ipairs { "{}", '{"a":"x"}', '{"a":"x","more":1}', '{"a":1,"more":1}', '{"more":1}' } do calls[#calls + 1] = { "open", arguments } end
for _, arguments in ipairs { "{}", '{"list":[1],"a":"x"}', '{"list":["x"],"a":1}', '{"list":[1],"a":1}' } do calls[#calls + 1] = { "hard", arguments } end

for _, arguments in ipairs {
  "{}", '{"a":1}', '{"a":2,"z":1}', '{"a":5,"z":0.5}', '{"a":6,"z":1001,"s":"a"}', '{"a":2,"z":1,"s":"abcdef"}', '{"a":2,"z":1,"s":"abcd"}',
  '{"z":"x","a":"y","s":1,"3":2,"o":3}', '{"a":2,"z":1,"o":{}}', '{"a":2,"z":1,"o":{"x":0,"9":1}}', '{"a":2,"z":1,"o":{"9":1,"x":1}}',
  '{"a":2,"z":1,"o":{"x":1,"y":2,"w":3}}', '{"a":2,"z":1,"o":{"x":null}}', '{"a":2,"z":1,"o":{"x":1,"9":null}}', '{"a":2,"z":"1","o":{"x":1,"9":null}}',
  '{"a":2,"z":1,"s":null}', '{"a":null,"z":null}', '{"a":null,"z":1,"s":null}', '{"a":2,"z":1,"long_nam":"x"}', '{"longname":"x","zz":1,"A":2}',
  '{"long_nema":"x","a":1,"z":0}', '{"a":2,"z":1,"' .. ("n"):rep(90) .. '":1}', '{"a":2,"z":1,"é":1}', '{"a":2,"z":1,"3":"a\\nb"}',
  '{"a":2,"z":1,"3":"é\\"' .. ("é"):rep(40) .. '"}', '{"a":12345678901234567890,"z":"x"}', '{"a":1234567890123456,"z":1}', '{"a":1.0,"z":1}', '{"a":2.5,"z":1}',
  '{"a":2.0,"z":0}', '{"a":2,"z":[1]}', '{"a":2,"z":[null]}', '{"a":2,"z":{"x":1}}', '{"a":2,"z":1,"o":[]}', '{"a":2,"z":1,"o":{"x":{"y":1}}}',
} do calls[#calls + 1] = { "known", arguments } end

-- Several faults at once, up to more than are named.
for count = 2, 14 do
  local some, strange = {}, {}
  for i = 1, count do some[i], strange[i] = ('"f%d":%s'):format(i, i % 3 == 0 and '"x"' or "0"), ('"g%d":1'):format(i) end
  calls[#calls + 1] = { "many", "{" .. table.concat(some, ",") .. "}" }
  calls[#calls + 1] = { "many", "{" .. table.concat(strange, ",") .. "}" }
  calls[#calls + 1] = { "many", '{"f1":"x","f2":0,' .. table.concat(strange, ",") .. "}" }
end

local SLOW <const> = '"' .. ("a"):rep(50000) .. '!"'
for _, arguments in ipairs {
  '"must":1,"slow":"ab"', '"must":1,"slow":%s', '"must":1,"not":%s', '"slow":%s', '"must":1,"slow":%s,"a_list":["x"]', '"must":1,"not":%s,"z_list":["x"]',
  '"must":"x","a_list":["x"],"slow":%s', '"must":1,"slow":%s,"not":"b"', '"must":1,"not":"b","slow":"aa"',
} do calls[#calls + 1] = { "endless", (("{" .. arguments .. "}"):gsub("%%s", function() return SLOW end)) } end

local KEYWORDS <const> = {
  '"multiple":4', '"multiple":"x"', '"const":4', '"enum":2', '"pattern":"b"', '"pattern":1', '"items":[1,"x"]', '"items":[]', '"items":[1,2,3,4]',
  '"items":[1,1]',
  '"items":[1,10]', '"items":{}', '"prefix":["x"]', '"prefix":[1,2]', '"contains":["x"]', '"contains":[1,2]', '"deep":{"a":{"b/c":[1,"x"]}}', '"names":{}',
  '"names":{"abc":1}', '"names":{"a":1,"b":2,"c":3}', '"rest":{"x":"y"}', '"rest":{"x":null}', '"by_pattern":{"x":"y"}', '"by_pattern":{"y":1}',
  '"needs":{"a":1}',
  '"any":4', '"any":{"k":1}', '"one":7', '"one":"x"', '"all":3', '"not":"x"', '"if":"xy"', '"if":10', '"ref":"abc"', '"either":true', '"either":1.5',
  '"never":1',
  '"left":{"b":1}', '"strange":1', '"multiples":1', '"any":null', '"pattern":null',
}
for i, one in ipairs(KEYWORDS) do
  calls[#calls + 1] = { "keywords", "{" .. one .. "}" }
  for _, distance in ipairs { 3, 7 } do
    local list, names = {}, {}
    for step = 0, 2 do
      local other = KEYWORDS[(i + step * distance - 1) % #KEYWORDS + 1]
      local name = other:match '^"(.-)"'
      if not names[name] then list[#list + 1], names[name] = other, true end
    end
    calls[#calls + 1] = { "keywords", "{" .. table.concat(list, ",") .. "}" }
  end
end
calls[#calls + 1] = { "keywords", '{"multiple":3,"const":5,"items":[1]}' }
for _, arguments in ipairs {
  "{}", '{"a":"x"}', '{"a":1,"b":"y"}', '{"a":1,"b":2}', '{"a":"x","b":2}', '{"b":2}', '{"a":1,"x1":"y"}', '{"a":"x","x1":"y","c":1}',
  '{"a":1,"c":1}', '{"c":1}',
  '{"a":1,"c":true}',
} do calls[#calls + 1] = { "root", arguments } end

for _, arguments in ipairs {
  "{}", '{"list":[1]}', '{"n":5,"list":[1],"o":{}}', '{"o":{"y":[1]}}', '{"o":{"x":[],"y":{}}}', '{"list":null}', '{"n":null}', '{"list":["x"],"n":null}',
  '{"n":1,"other":[1]}', '{"n":123456789012345678,"list":[1]}', '{"n":"x"}', '{"n":"x","list":[1]}', '{"list":[12345678901234567890]}', '{"list":{},"o":1}',
} do calls[#calls + 1] = { "filled", arguments } end

for _, arguments in ipairs {
  "{}", '{"orders":[]}', '{"orders":[{"id":1}]}', '{"orders":[{"id":0}]}', '{"orders":[{"id":1},{"id":"2"}]}', '{"orders":[{"id":1},{}]}', '{"orders":{}}',
  '{"orders":[1]}', '{"orders":[{"id":1,"to":{"y":["ab","abc"]}}]}', '{"orders":[{"id":1,"to":{"y":[1],"x":"1"}}]}', '{"orders":[{"id":1,"to":{"x":1}}]}',
  '{"orders":[{"id":1,"to":{"y":["a"],"7":"abc"}}]}', '{"orders":[{"note":"abc","id":0}]}', '{"orders":[{"id":1,"strange":1,"note":"abc"}]}',
  '{"orders":[{"id":1,"strange":1}]}', '{"orders":[{"note":"abc"}]}', '{"orders":[{"to":{"y":["abc"]},"id":-1}]}',
  '{"orders":[{"twice":{"note":"abc"},"id":1}]}', '{"orders":[{"twice":{"note":"a","again":"abc"},"id":1}]}', '{"orders":[{"id":1234567890123456789}]}',
  '{"orders":[{"id":1,"note":"\\n"}]}', '{"orders":[{"id":1,"note":"\\n\\n\\n"}]}', '{"orders":[{"id":1,"note":null}]}', '{"orders":[{"id":null}]}',
  '{"orders":[null]}', '{"orders":[{"id":1.5}]}', '{"orders":[{"id":1,"to":{"y":[],"x":0.12345678901234567890123}}]}',
  '{"orders":[{"id":2},{"id":1234567890123456},{"id":0}]}',
  '{"few":[]}', '{"few":[1,2,3,4]}', '{"few":[1,2,3,"x"]}', '{"few":["x",2,3,4]}', '{"few":[1,"x"]}', '{"few":[1.5]}',
  '{"grid":[[true],[false,1]]}', '{"grid":[true]}',
  '{"grid":[[[]]]}', '{"grid":[[],[]]}', '{"one":{"id":1,"to":{"y":[{}]}}}', '{"one":{"id":1,"to":[]}}', '{"one":[]}', '{"one":{}}', '{"one":"[1"}',
  '{"one":"t"}',
  '{"5":["a","abc"]}', '{"5":[{"a":1}]}', '{"n":[1]}', '{"n":{"id":1}}', '{"orders":[{"id":0}],"few":[],"grid":[[1]],"n":"x"}', '{"filled":[{}]}',
  '{"filled":[{},{"a":"x"}]}', '{"filled":[{"a":1,"b":[{}]}]}', '{"orders":[' .. ('{"id":1},'):rep(120) .. '{"id":"x"}]}',
  '{"orders":[{"id":1,"to":{"x":1,"y":["a"]}}],"few":[1]}',
} do calls[#calls + 1] = { "tree", arguments } end

for _, arguments in ipairs {
  "{}", '{"list":[{"x":1}]}', '{"list":[{"x":"1"}]}', '{"list":[{"x":"1"}],"code":"b"}', '{"list":[{"x":1}],"code":"b"}', '{"list":[{"x":1}],"code":"a"}',
  '{"list":[{"x":1234567890123456789}],"code":"a"}', '{"list":[{"x":1234567890123456789},{"x":"y"}],"code":"b"}',
  '{"list":[{"x":1234567890123456789}],"n":"x"}',
  '{"list":[{"x":"1"}],"n":null}', '{"list":{},"strange":1}', '{"list":[{"y":[1]}]}',
} do calls[#calls + 1] = { "partly", arguments } end

local function start(mode)
  return gateway.start { workers = 1, scripts = scripts, env = { MOONPOOL_PLANS = mode }, config = { log = { audit = "audit.jsonl" } } }
end

describe("arguments that do not fit", function()
  for _, revision in ipairs { "2025-03-26", "2025-11-25", "2026-07-28" } do
    it("are refused with the bytes of the general way, in answers, audit lines and metrics of " .. revision, function()
      local with <close> = start "on"
      local without <close> = start "off"
      local list = { with, without }
      local clients = { with:client(revision), without:client(revision) }
      local meta = revision == "2026-07-28" and ',"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        .. '"io.modelcontextprotocol/clientCapabilities":{}}' or ""
      for _, row in ipairs(calls) do
        local got = {}
        for i, g in ipairs(list) do
          local headers = clients[i]:headers { method = "tools/call", params = { name = row[1] } }
          headers["Content-Type"] = "application/json"
          local answer = g:connect():request({ method = "POST", path = "/mcp", headers = headers,
            body = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":%s%s}}'):format(row[1], row[2], meta) }, 20)
          got[i] = ("%d %s"):format(answer.status, answer.body)
        end
        assert.equal(got[2], got[1], row[1] .. " " .. row[2])
        assert.is_nil(got[1]:match "unknown tool", row[1])
      end
      local told = {}
      for i, g in ipairs(list) do
        wait.for_fact("the audit lines", 20, function() return #audit_lines.of(g, "tools/call") == #calls end)
        told[i] = { lines = audit_lines.of(g, "tools/call"), metrics = {} }
        local n
        wait.for_fact(function() return ("%d calls in the metrics, of %d"):format(n, #calls) end, 20, function()
          n = 0
          for count in g:admin("/metrics").body:gmatch '\n[%w_]*tool_calls_total{[^}]*} (%d+)' do n = n + tonumber(count) end
          return n >= #calls
        end)
        for line in g:admin("/metrics").body:gmatch "[^\n]+" do
          if line:find "^[%w_]*tool_calls_total" then table.insert(told[i].metrics, line) end
        end
        table.sort(told[i].metrics)
      end
      assert.same(told[2], told[1])
      assert.is_true(#told[1].metrics > 4)
    end)
  end
end)
