-- "Nothing" in the forms in which scripts and clients write it: an empty table where a list is declared, and null for an
-- argument that may be missing.
local gateway = require "spec.helpers.gateway"

local SCRIPTS <const> = {
  ["tools/find.lua"] = [==[return tool { "Finds.", output = t.object { items = t.list(t.object { tags = t.list(t.string), about = t.map(t.string) }),
    pair = t.tuple { t.string, t.list(t.integer) }, rows = t.nullable(t.list(t.string)) }, input = { some = t.boolean },
    function(args)
      return { items = args.some and { { tags = {}, about = {} }, { tags = { "a" }, about = {} } } or {}, pair = { "a", {} }, rows = {} }
    end }]==],
  ["tools/list.lua"] = [==[return tool { "Lists.", output = t.list(t.string), function() return {} end }]==],
  ["tools/take.lua"] = [==[return tool { "Takes.", input = { need = t.string, a = t.string { optional = true }, b = t.integer { default = 3 },
    c = t.optional(t.nullable(t.string)), o = t.optional(t.object { x = t.optional(t.one_of { "p", "q" }), y = t.string }) },
    function(args) return json.encode(args) end }]==],
  ["tools/deep.lua"] = [==[
    local object = { type = "object", additionalProperties = { ["$ref"] = "#/$defs/value" } }
    local value = { anyOf = { { type = "string" }, { ["$ref"] = "#/$defs/one" }, { ["$ref"] = "#/$defs/other" } } }
    return tool { "Takes.", input = t.schema { type = "object", properties = { n = { type = "integer" }, value = { ["$ref"] = "#/$defs/value" } },
      ["$defs"] = { value = value, one = object, other = { type = "object", additionalProperties = { ["$ref"] = "#/$defs/value" } } } },
      function() return "done" end }]==],
}

describe("nothing", function()
  local g, c
  setup(function()
    g = gateway.start { workers = 1, scripts = SCRIPTS }
    c = g:client "2026-07-28"
  end)
  teardown(function()
    c:close()
    g:stop()
  end)

  local function text(name, arguments) return c:result("tools/call", { name = name, arguments = arguments }).content[1].text end

  it("is a list where the output of a tool declares one, and an object elsewhere", function()
    assert.equal('{"items":[],"pair":["a",[]],"rows":[]}', text("find", { some = false }))
    local some = text("find", { some = true })
    assert.truthy(some:find('{"about":{},"tags":[]}', 1, true), some)
    assert.equal("[]", text "list")
  end)

  it("is null for an argument that may be missing, at any depth, and stays null where the type has it", function()
    local null = require "cjson".null
    local given = text("take", { need = "n", a = null, b = null, c = null, o = { x = null, y = "y" } })
    assert.equal('{"b":3,"c":null,"need":"n","o":{"y":"y"}}', given)
    assert.matches("argument 'need' must be a string, got null", text("take", { need = null, a = null }))
    assert.matches("argument 'o.y' must be a string, got null", text("take", { need = "n", o = { y = null } }))
  end)

  it("is no reason for a validator of an older dialect to refuse a tuple", function()
    for _, tool in ipairs(c:result("tools/list").tools) do
      local pair = tool.name == "find" and tool.outputSchema.properties.pair
      if pair then
        assert.equal(2, pair.maxItems)
        assert.is_nil(pair.items)
      end
    end
  end)

  it("is looked for once in each value, however many alternatives of a schema lead to it", function()
    local value = "x"
    for _ = 1, 40 do value = { a = value } end
    assert.matches("argument 'n' must be an integer", text("deep", { value = value, n = "one" }), 1, true)
  end)
end)
