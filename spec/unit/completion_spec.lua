local host = require "spec.helpers.host"

local scripts = {
  ["prompts/review.lua"] = [[return prompt { "R.", args = {
    language = t.string { complete = { "c", "go", "Lua", "python", "perl" } }, plain = t.string, focus = t.one_of { "bugs", "speed" },
    file = t.string { complete = function(prefix, args, call)
      if prefix == "bug" then error "secret" end
      if prefix == "odd" then return { {} } end
      if prefix == "none" then return nil end
      if prefix == "fail" then fail "no files today" end
      if prefix == "many" then
        local list = {}
        for i = 1, 150 do list[i] = i end
        return list
      end
      if prefix == "known" then return { "a" }, 5000 end
      return { prefix .. "." .. (args.language or "txt"), call.method }
    end } },
    "x" }]],
  ["resources/order.lua"] = 'return resource { "O.", uri = "orders://{region}/{id}", complete = { region = { "eu", "us" } }, "o" }',
  ["resources/fixed.lua"] = 'return resource { "F.", uri = "x:f", "o" }',
}

local prompt, order = { type = "ref/prompt", name = "review" }, { type = "ref/resource", uri = "orders://{region}/{id}" }

describe("completion", function()
  local vm
  before_each(function() vm = host.start(scripts) end)
  after_each(host.stop)

  local function complete(ref, name, value, fields, context)
    local result, err = vm:call("completion/complete", { ref = ref, argument = { name = name, value = value }, context = context }, fields)
    return result and result.completion, err, result
  end
  local function values(...) return table.concat(complete(...).values, " ") end

  it("offers what begins like it, of lists and of enumerated values", function()
    assert.equal("c go Lua python perl", values(prompt, "language", ""))
    assert.equal("python perl", values(prompt, "language", "p"))
    assert.equal("Lua", values(prompt, "language", "lU"))
    assert.equal("speed", values(prompt, "focus", "s"))
    assert.equal("us", values(order, "region", "u"))
    assert.same({ values = { "go" }, total = 1, hasMore = false }, complete(prompt, "language", "go"))
    for _, row in ipairs { { prompt, "language", "x" }, { prompt, "plain", "" }, { order, "id", "1" } } do
      assert.same({ values = {}, total = 0, hasMore = false }, (complete(row[1], row[2], row[3])))
    end
  end)

  it("is what a function returns, which gets the other arguments in eras that send them", function()
    assert.equal("a.txt completion/complete", values(prompt, "file", "a"))
    local context = { arguments = { language = "lua" } }
    assert.equal("a.lua completion/complete", values(prompt, "file", "a", nil, context))
    assert.equal("a.lua completion/complete", values(prompt, "file", "a", { revision = "2025-06-18" }, context))
    assert.equal("a.txt completion/complete", values(prompt, "file", "a", { revision = "2025-03-26" }, context))
    assert.same({ values = {}, total = 0, hasMore = false }, (complete(prompt, "file", "none")))
  end)

  it("gives a hundred values and says that there are more", function()
    local many = complete(prompt, "file", "many")
    assert.same({ 100, "100", 150, true }, { #many.values, many.values[100], many.total, many.hasMore })
    assert.same({ values = { "a" }, total = 5000, hasMore = true }, (complete(prompt, "file", "known")))
  end)

  it("never has a cache hint", function()
    local _, _, result = complete(prompt, "language", "")
    assert.same({ "complete", nil, nil }, { result.resultType, result.ttlMs, result.cacheScope })
    _, _, result = complete(prompt, "language", "", { revision = "2025-11-25" })
    assert.is_nil(result.resultType)
  end)

  it("fails as a handler does", function()
    assert.same({ code = -32603, message = "no files today" }, select(2, complete(prompt, "file", "fail")))
    assert.same({}, vm.logs)
    for _, prefix in ipairs { "bug", "odd" } do
      assert.truthy(select(2, complete(prompt, "file", prefix)).message:find "^internal error %x%x%x%x$")
    end
    assert.equal("completion failed", vm.logs[1].event)
  end)

  it("refuses a prompt, template or argument that does not exist", function()
    for _, row in ipairs {
      { { type = "ref/prompt", name = "reviw" }, "language", "", "unknown prompt 'reviw': did you mean 'review'?" },
      { { type = "ref/prompt" }, "language", "", "unknown prompt without a name" },
      { { type = "ref/resource", uri = {} }, "region", "", "unknown resource template without a name" },
      { { type = "ref/resource", uri = "orders://eu/1" }, "region", "", "unknown resource template 'orders://eu/1'" },
      { { type = "ref/resource", uri = "x:f" }, "region", "", "'fixed' has no argument 'region'" },
      { prompt, "langauge", "", "'review' has no argument 'langauge': did you mean 'language'?" },
      { { type = "ref/tool", name = "x" }, "a", "", 'params.ref must be { type: "ref/prompt", name } or { type: "ref/resource", uri }' },
      { nil, "a", "", 'params.ref must be { type: "ref/prompt", name } or { type: "ref/resource", uri }' },
      { prompt, "language", 1, "params.argument must be { name, value }, both strings" },
      { prompt, nil, "", "params.argument must be { name, value }, both strings" },
    } do
      local _, err = complete(row[1], row[2], row[3])
      assert.same({ code = -32602, message = row[4] }, err)
    end
    for _, revision in ipairs { "2026-07-28", "2025-03-26" } do
      assert.equal(-32602, select(2, vm:call("completion/complete", nil, { revision = revision })).code)
    end
  end)
end)

describe("capabilities", function()
  after_each(host.stop)

  local changes, watched = { listChanged = true }, { subscribe = true, listChanged = true }

  local function declared(files, revision)
    local vm = host.start(files)
    assert.is_nil(vm.errors, vm.errors and vm.errors[1])
    if revision == "2026-07-28" then return vm:call("server/discover", {}).capabilities end
    return vm:call("initialize", { protocolVersion = revision }, { revision = "none", initialized = false }).capabilities
  end

  it("name what is there, as the era knows it", function()
    for _, revision in ipairs { "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26" } do
      assert.same({ tools = changes, logging = {} }, declared({}, revision))
      assert.same({ tools = changes, logging = {}, prompts = changes, resources = watched, completions = {} }, declared(scripts, revision))
      assert.same({ tools = changes, logging = {}, resources = watched }, declared({ ["resources/f.lua"] = scripts["resources/fixed.lua"] }, revision))
      assert.same({ tools = changes, logging = {}, prompts = changes }, declared({ ["prompts/p.lua"] = 'return prompt { "P.", "p" }' }, revision))
    end
    assert.same({ tools = changes, logging = {}, prompts = changes, resources = watched }, declared(scripts, "2024-11-05"))
  end)

  it("missing mean that the method is unknown, also in 2024-11-05, which has it all the same", function()
    local vm = host.start { ["prompts/p.lua"] = 'return prompt { "P.", args = { a = t.string }, "p" }' }
    local params = { ref = { type = "ref/prompt", name = "p" }, argument = { name = "a", value = "" } }
    for _, revision in ipairs { "2026-07-28", "2024-11-05" } do
      assert.equal(-32601, select(2, vm:call("completion/complete", params, { revision = revision })).code)
      assert.equal(-32601, select(2, vm:call("resources/list", {}, { revision = revision })).code)
    end
    vm = host.start(scripts)
    params = { ref = prompt, argument = { name = "language", value = "g" } }
    assert.same({ "go" }, vm:call("completion/complete", params, { revision = "2024-11-05" }).completion.values)
  end)
end)
