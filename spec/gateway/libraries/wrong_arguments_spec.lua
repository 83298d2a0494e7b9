-- All errors in the arguments of a call are reported at once, up to a cap, so that a model needs one further try and
-- not four.
local gateway = require "spec.helpers.gateway"

describe("arguments that do not fit", function()
  local g, c
  setup(function()
    g = gateway.start { workers = 1, scripts = {
      ["tools/four.lua"] = [[return tool { "Four.", input = { a = t.string, b = t.string, c = t.integer { min = 1 }, d = t.list(t.number, { max = 2 }) },
        function() return "fine" end }]],
      ["tools/deep.lua"] = [[return tool { "Deep.", input = { order = t.object { id = t.integer, lines = t.list(t.object { n = t.integer }) }, to = t.string },
        function() return "fine" end }]],
      ["tools/many.lua"] = [[
        local fields = {}
        for i = 1, 40 do fields[("f%02d"):format(i)] = t.integer end
        return tool { "Many.", input = fields, function() return "fine" end }]],
      ["prompts/two.lua"] = [[return prompt { "Two.", args = { one = t.string, two = t.string }, function() return "text" end }]],
    } }
    c = g:client "2026-07-28"
  end)
  teardown(function()
    c:close()
    g:stop()
  end)

  local function told(name, arguments)
    local result = c:result("tools/call", { name = name, arguments = arguments })
    assert.is_true(result.isError)
    return result.content[1].text
  end

  it("are reported all at once", function()
    assert.equal([[
4 arguments are wrong:
- argument 'd' is missing
- there is no argument 'aa': did you mean 'a'?
- argument 'b' must be a string, got a number (1)
- argument 'c' must be at least 1, got 0]], told("four", { a = "q", aa = 2, b = 1, c = 0 }))
  end)

  it("are reported in one line where there is one", function()
    assert.equal("argument 'd' must have at most 2 items, got 3", told("four", { a = "q", b = "x", c = 1, d = { 1, 2, 3 } }))
    assert.equal("argument 'a' is missing", told("four", { b = "x", c = 1, d = { 1 } }))
  end)

  it("are reported by their place, the first within each argument", function()
    assert.equal([[
2 arguments are wrong:
- argument 'to' is missing
- argument 'order.lines[1].n' must be an integer, got a string ("x")]], told("deep", { order = { id = 1, lines = { { n = 1 }, { n = "x" } } } }))
  end)

  it("are reported up to a cap", function()
    local text = told("many", {})
    assert.match("^more than 10 arguments are wrong:\n%- argument 'f01' is missing\n", text)
    assert.match("\n%- argument 'f10' is missing\n%- and more$", text)
    local wrong = {}
    for i = 1, 40 do wrong[("f%02d"):format(i)] = "x" end
    text = told("many", wrong)
    assert.match("^more than 10 arguments are wrong:", text)
    assert.equal(12, select(2, text:gsub("\n", "\n")) + 1)
    local strangers = {}
    for i = 1, 5000 do strangers["stranger" .. i] = i end
    assert.is_true(#told("many", strangers) < 3000)
  end)

  it("are reported for prompts, too", function()
    assert.equal("2 arguments are wrong:\n- argument 'one' is missing\n- argument 'two' is missing", c:call("prompts/get", { name = "two" }).error.message)
  end)
end)
