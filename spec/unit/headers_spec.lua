local host = require "spec.helpers.host"

local scripts = { ["tools/it.lua"] = [[
return tool { "It.",
  input = {
    region = t.string { optional = true, header = "Region" }, size = t.integer { optional = true, header = "Size" },
    dry = t.boolean { optional = true, header = "dry-run" }, deep = t.optional(t.object { inside = t.string { header = "Inside" } }),
  },
  function() return "ran" end }]] }

describe("Mcp-Param headers", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  local function call(arguments, headers, revision)
    local result, err = vm:tool("it", arguments, { headers = headers, revision = revision })
    return result and result.content[1].text or err.code, err and err.message
  end

  it("are announced in the schema", function()
    assert.equal("Region", vm:list().it.inputSchema.properties.region["x-mcp-header"])
  end)

  it("must be there, once, equal to their argument, and only then", function()
    assert.equal("ran", call({}, {}))
    assert.equal("ran", call({ region = "eu" }, { ["mcp-param-region"] = "eu" }))
    assert.equal("ran", call({ region = "" }, { ["mcp-param-region"] = "" }))
    assert.equal(-32020, call({ region = "eu" }, {}))
    assert.equal(-32020, call({}, { ["mcp-param-region"] = "eu" }))
    assert.equal(-32020, call({ region = "eu" }, { ["mcp-param-region"] = "EU" }))
    assert.equal(-32020, call({ region = "eu" }, { ["mcp-param-region"] = { "eu", "eu" } }))
    assert.equal(-32020, call({ region = "\u{e9}" }, { ["mcp-param-region"] = "\u{e9}" }))
    assert.equal("header Mcp-Param-Region is missing", select(2, call({ region = "eu" }, {})))
  end)

  it("compare integers as numbers and booleans as words", function()
    for _, text in ipairs { "42", "42.0", "+42", "4.2e1" } do assert.equal("ran", call({ size = 42 }, { ["mcp-param-size"] = text })) end
    for _, text in ipairs { "0x2A", "43", "", "4 2", "nan" } do assert.equal(-32020, call({ size = 42 }, { ["mcp-param-size"] = text })) end
    assert.equal("ran", call({ dry = true }, { ["mcp-param-dry-run"] = "true" }))
    assert.equal(-32020, call({ dry = true }, { ["mcp-param-dry-run"] = "1" }))
  end)

  it("reach into objects", function()
    assert.equal("ran", call({ deep = { inside = "x" } }, { ["mcp-param-inside"] = "x" }))
    assert.equal(-32020, call({ deep = { inside = "x" } }, {}))
  end)

  it("may be Base64 between exact marks", function()
    local function region(value, text) return (call({ region = value }, { ["mcp-param-region"] = text })) end
    assert.equal("ran", region("Hello", "=?base64?SGVsbG8=?="))
    assert.equal("ran", region("\u{e9}", "=?base64?w6k=?="))
    assert.equal("ran", region("", "=?base64??="))
    assert.equal(-32020, region("Hello", "=?base64?SGVsbG8?="))
    assert.equal(-32020, region("Hello", "=?base64?SGVs!!!bG8=?="))
    assert.equal(-32020, region("\255", "=?base64?/w==?="))
    for _, literal in ipairs { "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?BASE64?SGVsbG8=?=" } do assert.equal("ran", region(literal, literal)) end
  end)

  it("do not exist in older eras and outside HTTP", function()
    assert.equal("ran", call({ region = "eu" }, {}, "2025-11-25"))
    assert.equal("ran", call({ region = "eu" }, nil))
  end)
end)

describe("a header annotation that breaks the rules", function()
  after_each(host.stop)

  it("keeps the tool from loading", function()
    for input, complaint in pairs {
      ['{ a = t.string { header = "" } }'] = "is not a header name",
      ['{ a = t.string { header = "a b" } }'] = "is not a header name",
      ['{ a = t.number { header = "A" } }'] = "needs a string, an integer or a boolean",
      ['{ a = t.string { header = "X" }, b = t.string { header = "x" } }'] = "share the header",
      ['{ a = t.list(t.string { header = "X" }) }'] = "cannot be sent",
      ['t.schema { type = "object", allOf = { { properties = { a = { type = "string", ["x-mcp-header"] = "X" } } } } }'] = "cannot be sent",
      ['t.schema { type = "object", ["$defs"] = { a = { type = "string", ["x-mcp-header"] = "X" } } }'] = "cannot be sent",
    } do
      local vm = host.start { ["tools/it.lua"] = ('return tool { "It.", input = %s, function() end }'):format(input) }
      assert.truthy(vm.errors and vm.errors[1]:find(complaint, 1, true), input .. "\n" .. table.concat(vm.errors or {}, "\n"))
    end
  end)
end)
