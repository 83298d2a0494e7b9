local host = require "spec.helpers.host"
local json = host.json

local function tool(body, head)
  return ("return tool { %q, %s\n function(args, call) %s end }"):format("It.", head or "", body)
end

-- The result of one call of a tool with this body.
local function result_of(body, args, fields, head)
  local vm = host.start { ["tools/it.lua"] = tool(body, head) }
  assert.is_nil(vm.errors, vm.errors and table.concat(vm.errors, "\n"))
  local result, err = vm:tool("it", args, fields)
  return result, err, vm
end

local function text_of(...)
  local result, err = result_of(...)
  return result and result.content[1].text, result and result.isError, err
end

describe("what a handler returns", function()
  after_each(host.stop)

  it("becomes text when it is a string, a number or a boolean", function()
    assert.equal("hello", text_of 'return "hello"')
    assert.equal("3", text_of "return 3")
    assert.equal("3", text_of "return 3.0")
    assert.equal("0.1", text_of "return 0.1")
    assert.equal("9007199254740993", text_of "return 9007199254740993")
    assert.equal("false", text_of "return false")
  end)

  it("becomes structured content, and the same JSON as text, when it is a table", function()
    local result = result_of "return { b = 1, a = { 1, 2 } }"
    assert.equal('{"a":[1,2],"b":1}', result.content[1].text)
    assert.equal('{"a":[1,2],"b":1}', json.bytes(result.structuredContent))
    assert.equal("complete", result.resultType)
    assert.equal('{"io.modelcontextprotocol/serverInfo":{"name":"moonpool","version":"0.0-spec"}}', json.encode(result._meta))
  end)

  it("stays content when it is a block or a list with blocks", function()
    assert.same({ { type = "image", data = "aGk=", mimeType = "image/png" } }, result_of('return image("hi", "image/png")').content)
    local blocks = result_of('return { "see", link("file:///a/b.txt", { mime = "text/plain" }), 7, embed("x:y", "z", "text/plain"), audio("abc") }').content
    assert.same({
      { type = "text", text = "see" }, { type = "resource_link", uri = "file:///a/b.txt", name = "b.txt", mimeType = "text/plain" },
      { type = "text", text = "7" }, { type = "resource", resource = { uri = "x:y", text = "z", mimeType = "text/plain" } },
      { type = "audio", data = "YWJj", mimeType = "audio/wav" },
    }, blocks)
  end)

  it("is an empty answer when the handler returns nothing", function()
    local result = result_of "return"
    assert.same({}, result.content)
    assert.is_nil(result.isError)
  end)

  it("is a fault when JSON cannot say it", function()
    for _, body in ipairs { "return print", "return { f = print }", "local a = {} a.a = a return a", 'return "\\255"', "return { n = 0/0 }" } do
      local text, is_error = text_of(body)
      assert.equal("internal error 7f3a", text, body)
      assert.is_true(is_error)
    end
  end)

  it("must fit the output schema that the tool declares", function()
    local head = "output = { sum = t.number },"
    assert.equal('{"sum":3}', text_of("return { sum = 3 }", nil, nil, head))
    local result, _, vm = result_of('return { sum = "three" }', nil, nil, head)
    assert.equal("internal error 7f3a", result.content[1].text)
    assert.is_true(result.isError)
    assert.equal("the result does not fit 'output': /sum must be a number, got a string", vm.logs[1].fields.why)
    _, _, vm = result_of("return { total = 3 }", nil, nil, head)
    assert.equal("the result does not fit 'output': must have property 'sum'", vm.logs[1].fields.why)
  end)
end)

describe("a tool that fails", function()
  after_each(host.stop)

  it("with an expected error sends its text to the model, and nothing to the log", function()
    for _, body in ipairs {
      'return nil, "no such order"', 'fail "no such order"', 'try(nil, "no such order")', 'return (try(false, "no such order"))',
    } do
      local result, _, vm = result_of(body)
      assert.equal("no such order", result.content[1].text)
      assert.is_true(result.isError)
      assert.same({}, vm.logs)
    end
    assert.equal("the tool returned neither a result nor a reason", text_of "return nil")
  end)

  it("passes on what try was given when all is well", function()
    assert.equal("12", text_of "local a, b = try(1, 2) return a .. b")
  end)

  it("says only a short id when it is a bug, and logs the rest", function()
    local result, _, vm = result_of "local nothing\n return nothing.field"
    assert.equal("internal error 7f3a", result.content[1].text)
    local logged = vm.logs[1]
    assert.equal("error", logged.level)
    assert.equal("tool failed", logged.event)
    assert.equal("it", logged.fields.name)
    assert.equal("7f3a", logged.fields.id)
    assert.truthy(logged.fields.why:find("scripts/tools/it.lua:3: attempt to index a nil value", 1, true))
    assert.equal("scripts/tools/it.lua:3", logged.fields.trace)
  end)

  it("survives error values of every kind, and recursion without end", function()
    for _, body in ipairs {
      "error { code = 7 }", "error()", "error(print)", "error(setmetatable({}, { __tostring = function() error 'again' end }))",
      "local t = {} t.t = t error(t)", "local function f() return 1 + f() end return f()",
    } do
      local text, is_error = text_of(body)
      assert.equal("internal error 7f3a", text, body)
      assert.is_true(is_error)
    end
  end)
end)

describe("arguments", function()
  after_each(host.stop)
  local head = 'input = { n = t.number { min = 0 }, unit = t.one_of { "c", "f", default = "c" }, deep = t.optional(t.object { list = t.list(t.integer) }) },'
  local body = "return args.n .. args.unit"

  it("are filled with defaults", function()
    assert.equal("1c", text_of(body, { n = 1 }, nil, head))
  end)

  it("that do not fit are a readable failure that names the argument, without running the tool", function()
    for expected, args in pairs {
      ["argument 'n' is missing"] = {}, ["argument 'n' must be a number, got a string (\"x\")"] = { n = "x" },
      ["argument 'n' must be at least 0, got -1"] = { n = -1 },
      ["there is no argument 'unti': did you mean 'unit'?"] = { n = 1, unti = "c" },
      ["argument 'deep.list[1]' must be an integer, got a string (\"x\")"] = { n = 1, deep = { list = json.array { 1, "x" } } },
      ["argument 'n' must be a number, got null"] = { n = json.null },
      ["argument 'n' must be a number, got an array"] = { n = json.array {} },
    } do
      local text, is_error = text_of("error 'ran'", args, nil, head)
      assert.equal(expected, text)
      assert.is_true(is_error)
    end
  end)

  it("that do not fit are an error before 2025-11-25", function()
    for revision, code in pairs { ["2025-06-18"] = -32602, ["2025-03-26"] = -32602, ["2024-11-05"] = -32602 } do
      local _, _, err = text_of(body, {}, { revision = revision }, head)
      assert.same({ code = code, message = "argument 'n' is missing" }, err)
    end
    assert.equal("argument 'n' is missing", text_of(body, {}, { revision = "2025-11-25" }, head))
  end)

  it("may be left out altogether, but must be an object", function()
    local vm = host.start { ["tools/it.lua"] = tool 'return "ran"' }
    assert.equal("ran", vm:call("tools/call", { name = "it" }).content[1].text)
    assert.equal("ran", vm:call("tools/call", { name = "it", arguments = json.null }).content[1].text)
    for _, wrong in ipairs { "x", 1, true, json.array {} } do
      local result, err = vm:call("tools/call", { name = "it", arguments = wrong })
      assert.is_nil(result)
      assert.same({ code = -32602, message = "params.arguments must be an object" }, err)
    end
  end)
end)

describe("a name that is no tool", function()
  after_each(host.stop)

  it("is refused with the nearest one", function()
    local vm = host.start { ["tools/convert.lua"] = tool "return 1" }
    assert.same({ code = -32602, message = "unknown tool 'covnert': did you mean 'convert'?" }, select(2, vm:tool("covnert", {})))
    assert.same({ code = -32602, message = "unknown tool 'x'" }, select(2, vm:tool("x", {})))
    assert.same({ code = -32602, message = "params.name must be a string" }, select(2, vm:call("tools/call", {})))
    assert.equal(-32602, select(2, vm:call("tools/call", nil)).code)
  end)
end)

describe("a tool that needs a capability", function()
  after_each(host.stop)

  it("runs when the client has it", function()
    assert.equal("ran", text_of('return "ran"', {}, { capabilities = { sampling = {} } }, 'requires = { "sampling" },'))
    assert.equal("ran", text_of('call:require("elicitation.form") return "ran"', {}, { capabilities = { elicitation = {} } }))
  end)

  it("is -32021 with the tree of what is missing, from the option and from the call", function()
    local expected = { code = -32021, message = "the client lacks a capability that this needs: sampling", data = { requiredCapabilities = { sampling = {} } } }
    assert.same(expected, select(2, result_of('return "ran"', {}, nil, 'requires = { "sampling" },')))
    assert.same(expected, select(2, result_of('call:require("sampling") return "ran"', {})))
    local _, err = result_of('call:require("elicitation.url", "extensions.io.x/tasks")', {}, { capabilities = { elicitation = {} } })
    assert.same({ elicitation = { url = {} }, extensions = { ["io.x/tasks"] = {} } }, err.data.requiredCapabilities)
  end)

  it("is a failure the model reads before 2026-07-28", function()
    local text, is_error = text_of('return "ran"', {}, { revision = "2025-11-25" }, 'requires = { "sampling" },')
    assert.equal("the client lacks a capability that this needs: sampling", text)
    assert.is_true(is_error)
  end)
end)

describe("a tool with a timeout", function()
  after_each(host.stop)

  it("hands it to the host", function()
    local _, _, vm = result_of('return "ran"', {}, nil, "timeout = 2 * minutes,")
    assert.equal(120, vm.last.deadline)
  end)
end)
