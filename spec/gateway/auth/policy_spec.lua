-- policy { … }: one function around calls of tools, reads of resources and prompts, in a declared order.
local gateway = require "spec.helpers.gateway"

local scripts = {
  ["tools/echo.lua"] = [[return tool { "Says it.", input = { say = t.string { max = 20 }, secret = t.string { optional = true } }, function(args)
    return { said = args.say, secret = args.secret }
  end }]],
  ["tools/other.lua"] = [[return tool { "Other.", input = { n = t.integer { default = 1 } }, function(args) return "other " .. args.n end }]],
  ["tools/sure.lua"] = [[return tool { "Asks.", function(_, call)
    local yes = try(call:elicit("sure", "Sure?", { ok = t.boolean }))
    return yes.ok and "did it" or "left it"
  end }]],
  ["resources/order.lua"] = [[return resource { "An order.", uri = "orders://{region}/{id}", function(vars) return vars.region .. " " .. vars.id end }]],
  ["prompts/hello.lua"] = [[return prompt { "Greets.", args = { name = t.string }, function(args) return "Greet " .. args.name end }]],
  ["policy/10-outer.lua"] = [[return policy { "Tells the order of things.", tools = { "other" }, order = -1, function(call, next)
    local value, why = next(call)
    return "outer(" .. tostring(value) .. ")", why
  end }]],
  ["policy/a-inner.lua"] = [[return policy { tools = { "oth*" }, function(call, next)
    if call.args.n == 2 then fail "not two" end
    if call.args.n == 3 then return "made up" end
    if call.args.n == 4 then call.args.n = "four" end
    if call.args.n == 5 then return nil, "five is refused" end
    if call.args.n == 6 then error "a bug" end
    if call.args.n == 7 then call.args.n = 70 end
    if call.args.n == 8 then call.mine = 1 end
    if call.args.n == 9 then call.name = "echo" end
    return "inner(" .. tostring(next(call)) .. ")"
  end }]],
  ["policy/redact.lua"] = [[return policy { tools = { "echo" }, function(call, next)
    local value, why = next(call)
    if value then value.secret = nil end
    return value, why
  end }]],
  ["policy/regions.lua"] = [[return policy { resources = { "orders://eu/*" }, function(call, next)
    if call.args.id == "13" then fail("not " .. call.uri) end
    return "checked " .. try(next(call))
  end }]],
  ["policy/words.lua"] = [[return policy { prompts = { "*" }, function(call, next)
    call.args.name = call.args.name:upper()
    return next(call)
  end }]],
  ["policy/all.lua"] = [[return policy { order = 100, function(call, next)
    log.info("passes", { kind = call.kind, name = call.name, who = call.principal, method = call.method })
    return next(call)
  end }]],
  ["policy/asks.lua"] = [[return policy { tools = { "sure" }, function(call, next)
    local value, why = next(call)
    return value and value .. "!", why
  end }]],
}

describe("a policy", function()
  local g, c

  lazy_setup(function()
    g = gateway.start { scripts = scripts, workers = 2 }
    c = g:client "2026-07-28"
  end)
  lazy_teardown(function()
    local _ <close> = g -- luacheck: ignore 211
    c:close()
  end)

  local function call(name, arguments) return c:result("tools/call", { name = name, arguments = arguments }) end
  local function text(name, arguments)
    local result = call(name, arguments)
    return result.content[1].text, result.isError
  end

  it("runs around the call, with later policies inside it, in their order", function()
    assert.equal("outer(inner(other 1))", (text("other", {})))
  end)

  it("refuses, and the tool does not run", function()
    assert.same({ "not two", true }, { text("other", { n = 2 }) })
    assert.same({ "outer(nil)" }, { text("other", { n = 5 }) })
  end)

  it("answers by itself", function() assert.equal("outer(made up)", (text("other", { n = 3 }))) end)

  it("changes arguments, which have to fit", function()
    assert.equal("outer(inner(other 70))", (text("other", { n = 7 })))
    local told, failed = text("other", { n = 4 })
    assert.match("^internal error %x+$", told)
    assert.is_true(failed)
    local why = "a policy changed the arguments, and they do not fit: argument 'n' must be an integer"
    assert.match(why, g:wait_log("tool failed", { name = "other" }).fields.why, 1, true)
  end)

  it("with a bug admits nothing", function()
    local told, failed = text("other", { n = 6 })
    assert.match("^internal error %x+$", told)
    assert.is_true(failed)
  end)

  it("sets nothing on the call but its arguments", function()
    local id = text("other", { n = 8 }):match "^internal error (%x+)$"
    assert.match("a policy cannot set call.mine", g:wait_log("tool failed", { id = id }).fields.why, 1, true)
    id = text("other", { n = 9 }):match "^internal error (%x+)$"
    assert.match("a policy cannot set call.name", g:wait_log("tool failed", { id = id }).fields.why, 1, true)
  end)

  it("changes results", function()
    assert.same({ said = "x" }, call("echo", { say = "x", secret = "s" }).structuredContent)
  end)

  it("runs only around the things that it names", function()
    assert.equal("checked eu 12", c:result("resources/read", { uri = "orders://eu/12" }).contents[1].text)
    assert.equal("us 13", c:result("resources/read", { uri = "orders://us/13" }).contents[1].text)
    assert.equal("not orders://eu/13", c:call("resources/read", { uri = "orders://eu/13" }).error.message)
  end)

  it("is around prompts", function()
    assert.equal("Greet ANNA", c:result("prompts/get", { name = "hello", arguments = { name = "anna" } }).messages[1].content.text)
    g:wait_log("passes", { kind = "prompt", name = "hello", method = "prompts/get" })
  end)

  it("lets a handler ask its client", function()
    local params = { name = "sure", _meta = { ["io.modelcontextprotocol/clientCapabilities"] = { elicitation = { form = {} } } } }
    local asked = c:result("tools/call", params)
    assert.equal("input_required", asked.resultType)
    params.requestState, params.inputResponses = asked.requestState, { sure = { action = "accept", content = { ok = true } } }
    assert.equal("did it!", c:result("tools/call", params).content[1].text)
  end)

  it("leaves nothing behind", function()
    c:close()
    assert.has_nothing_left(g)
  end)
end)

describe("a policy that is wrong", function()
  local function report(text)
    local ok, why = pcall(gateway.start, { scripts = { ["policy/x.lua"] = text } })
    assert.is_false(ok)
    return tostring(why)
  end

  for what, case in pairs {
    ["has no function"] = { "return policy { tools = { 'a' } }", "policy/x.lua:1: a policy needs a function(call, next)" },
    ["has an unknown option"] = { "return policy {\n  tool = { 'a' }, function() end }", "policy/x.lua:2: policy has no option 'tool'" },
    ["names nothing"] = { "return policy { tools = {}, function() end }", "'tools' is an empty list" },
    ["names what is no name"] = { "return policy { tools = { 1 }, function() end }", "'tools' item 1 is not a name" },
    ["is a limit without a rate"] = { "return limit { tools = { 'a' } }", "limit needs 'rate'" },
    ["is a limit of no time"] = { "return limit { rate = 1, per = 0 }", "'per' must be a time" },
    ["is a limit by nobody"] = { "return limit { rate = 1, by = 'client' }", "'by' must be \"principal\"" },
    ["is a quota for a week"] = { "return quota { most = 1, per = 'week' }", "'per' must be \"hour\", \"day\" or \"month\"" },
    ["is a quota with a slip"] = { "return quota { mots = 1 }", "quota has no option 'mots'" },
    ["is no policy"] = { "return tool { 'x', function() end }", "'x' is a table, not a policy" },
  } do
    it("because it " .. what .. ", is reported", function() assert.match(case[2], report(case[1]), 1, true) end)
  end

  it("because no thing has such a name, is loaded with a warning", function()
    local g <close> = gateway.start { scripts = {
      ["tools/search.lua"] = [[return tool { "s", function() return "s" end }]],
      ["policy/x.lua"] = [[return policy { tools = { "serach" }, function(call, next) return next(call) end }]],
    } }
    g:wait_log("policy for no tool", { policy = "x", pattern = "serach" })
  end)
end)
