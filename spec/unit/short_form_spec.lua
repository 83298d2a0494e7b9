local host = require "spec.helpers.host"

-- Loads one tool and returns its entry in tools/list.
local function listed(text)
  local vm = host.start { ["tools/it.lua"] = text }
  assert.is_nil(vm.errors, vm.errors and table.concat(vm.errors, "\n"))
  return vm:list().it, vm
end

local function complaint(text)
  local vm = host.start { ["tools/it.lua"] = text }
  return table.concat(vm.errors or {}, "\n")
end

describe("a plain function with annotations", function()
  after_each(host.stop)

  it("is a tool whose schema is the annotations", function()
    local add = listed [[
--- Add two numbers.
---@param a number
---@param b number
return function(a, b) return a + b end
]]
    assert.equal("Add two numbers.", add.description)
    assert.same({
      type = "object", properties = { a = { type = "number" }, b = { type = "number" } }, required = { "a", "b" }, additionalProperties = false,
    }, add.inputSchema)
  end)

  it("keeps its parameters in the order they are written", function()
    local _, vm = listed [[
--- Order.
---@param zebra string
---@param apple string
return function(zebra, apple) return zebra .. apple end
]]
    local _, bytes = vm:list()
    assert.truthy(bytes:find('"properties":{"zebra":{"type":"string"},"apple"', 1, true))
    assert.truthy(bytes:find('"required":["zebra","apple"]', 1, true))
  end)

  it("gets its arguments by name and the call by that name", function()
    local _, vm = listed [[
--- Who.
---@param name string  Whom to greet
return function(call, name) return name .. " " .. call.revision end
]]
    assert.equal("Ann 2026-07-28", vm:tool("it", { name = "Ann" }).content[1].text)
    assert.equal("Whom to greet", vm:list().it.inputSchema.properties.name.description)
  end)

  it("takes no arguments when it has no parameters", function()
    assert.same({ type = "object", additionalProperties = false }, listed("--- Nothing.\nreturn function() end").inputSchema)
  end)

  it("may leave out a parameter marked with ?", function()
    local it_ = listed [[
--- Maybe.
---@param a? number
---@param b number|nil
---@param c number?
---@param d number
return function(a, b, c, d) return a or b or c or d end
]]
    assert.same({ "d" }, it_.inputSchema.required)
  end)

  it("understands the types people write", function()
    local properties = listed([[
--- Types.
---@param list string[]
---@param map table<string, integer>
---@param choice "a"|"b" Which
---@param shape { x: number, y?: number, tags: string[] }
---@param either string|number
---@param anything any
return function(list, map, choice, shape, either, anything) return tostring(list or map or choice or shape or either or anything) end
]]).inputSchema.properties
    assert.same({ type = "array", items = { type = "string" } }, properties.list)
    assert.same({ type = "object", additionalProperties = { type = "integer" } }, properties.map)
    assert.same({ type = "string", enum = { "a", "b" }, description = "Which" }, properties.choice)
    assert.same({
      type = "object", required = { "x", "tags" },
      properties = { x = { type = "number" }, y = { type = "number" }, tags = { type = "array", items = { type = "string" } } },
    }, properties.shape)
    assert.same({ anyOf = { { type = "string" }, { type = "number" } } }, properties.either)
    assert.same({}, properties.anything)
  end)

  it("promises what it returns when that is a table", function()
    local entry, vm = listed [[
--- Point.
---@return { x: number, y: number } point
return function() return { x = 1, y = 2 } end
]]
    assert.equal("object", entry.outputSchema.type)
    assert.equal('{"x":1,"y":2}', vm:tool("it", {}).content[1].text)
  end)

  it("joins the lines of its comment, and lets plain comments stay private", function()
    assert.equal("First.\nSecond.", listed("-- tools/it.lua: a note\n--- First.\n--- Second.\nreturn function() end").description)
    assert.equal("Only this.", listed("-- Only this.\nreturn function() end").description)
  end)

  it("may be one of several in a file, each under its own comment", function()
    local vm = host.start { ["tools/math/tools.lua"] = [[
return {
  --- Twice.
  ---@param n number
  twice = function(n) return n * 2 end,
  half = tool { "Half.", input = { n = t.number }, function(args) return args.n / 2 end },
}
]] }
    assert.is_nil(vm.errors)
    assert.equal("Twice.", vm:list().math_twice.description)
    assert.equal("4", vm:tool("math_twice", { n = 2 }).content[1].text)
    assert.equal("1", vm:tool("math_half", { n = 2 }).content[1].text)
  end)

  it("is refused with the line and a hint when an annotation is wrong", function()
    assert.equal([[
scripts/tools/it.lua:2: the function has no parameter 'nam'
    ---@param nam string
  hint: did you mean 'name'?
scripts/tools/it.lua:3: parameter 'name' has no annotation
    return function(name) return name end
  hint: write '---@param name number' above the function]], complaint [[
--- Greets.
---@param nam string
return function(name) return name end
]])
    assert.equal("scripts/tools/it.lua:2: unknown type 'numbr'\n    ---@param a numbr\n  hint: did you mean 'number'?",
      complaint("--- A.\n---@param a numbr\nreturn function(a) return a end"))
    assert.truthy(complaint("return function() end"):find("the function has no description", 1, true))
    assert.truthy(complaint("--- A.\nreturn function(...) return ... end"):find("cannot take '...'", 1, true))
  end)
end)
