local host = require "spec.helpers.host"

local review = [[return prompt {
  "Review a change.", title = "Review", icons = { { src = "https://x/i.png" } }, meta = { team = "web" },
  args = {
    language = t.string { complete = { "c", "go", "Lua", "python" } },
    diff = t.string { "A unified diff", title = "Diff", max = 10 },
    focus = t.one_of { "bugs", "speed", default = "bugs" },
  },
  function(args, call)
    if args.diff == "bug" then error "secret" end
    if args.diff == "fail" then fail "too dull" end
    if args.diff == "nil" then return nil, "nothing in it" end
    if args.diff == "able" then call:require "sampling" end
    if args.diff == "nothing" then return end
    return user("Review this " .. args.language .. " for " .. args.focus .. ": " .. args.diff)
  end }]]

local function get(vm, name, arguments, fields) return vm:call("prompts/get", { name = name, arguments = arguments }, fields) end

describe("prompts", function()
  local vm
  before_each(function()
    vm = host.start {
      ["prompts/code/review.lua"] = review,
      ["prompts/plain.lua"] = 'return prompt { "Plain.", "Say hello." }',
      ["prompts/rich.lua"] = [[
local old = text("old", { audience = { "user" }, modified = "2026-01-01T00:00:00Z" })
return prompt { "Rich.", function()
  return { user "one", assistant(text "two"), image("a"), audio "abc", link("x:y", { title = "Y" }), user(embed("x:e", "e")), old, "last" }
end }]],
    }
    assert.is_nil(vm.errors, vm.errors and vm.errors[1])
  end)
  after_each(host.stop)

  it("are listed with their arguments, as the era knows them", function()
    local result = vm:read "prompts/list"
    assert.equal(5000, result.ttlMs)
    assert.same({
      name = "code_review", title = "Review", description = "Review a change.", icons = { { src = "https://x/i.png" } }, _meta = { team = "web" },
      arguments = {
        { name = "language", required = true }, { name = "diff", title = "Diff", description = "A unified diff", required = true }, { name = "focus" },
      },
    }, result.prompts[1])
    assert.same({ name = "plain", description = "Plain." }, result.prompts[2])
    local entry = vm:read("prompts/list", {}, { revision = "2025-06-18" }).prompts[1]
    assert.same({ "Review", nil, "web", "Diff" }, { entry.title, entry.icons, entry._meta.team, entry.arguments[2].title })
    for _, revision in ipairs { "2025-03-26", "2024-11-05" } do
      assert.same({
        name = "code_review", description = "Review a change.",
        arguments = { { name = "language", required = true }, { name = "diff", description = "A unified diff", required = true }, { name = "focus" } },
      }, vm:read("prompts/list", {}, { revision = revision }).prompts[1])
    end
    assert.equal("prompt  code_review  Review a change.\nprompt  plain  Plain.\nprompt  rich  Rich.\n", (vm.moonpool.describe "list"))
  end)

  it("become messages", function()
    local result = get(vm, "code_review", { language = "Lua", diff = "+x" })
    assert.equal("Review a change.", result.description)
    assert.same({ { role = "user", content = { type = "text", text = "Review this Lua for bugs: +x" } } }, result.messages)
    assert.equal("complete", result.resultType)
    assert.is_nil(result.ttlMs)
    assert.equal("Say hello.", get(vm, "plain").messages[1].content.text)
    assert.is_nil(get(vm, "plain", nil, { revision = "2025-11-25" }).resultType)
  end)

  it("hold only blocks that the era knows, and leave the script's own alone", function()
    local function kinds(revision)
      local types = {}
      for i, message in ipairs(get(vm, "rich", {}, { revision = revision }).messages) do types[i] = message.role:sub(1, 1) .. ":" .. message.content.type end
      return table.concat(types, " ")
    end
    assert.equal("u:text a:text u:image u:audio u:resource_link u:resource u:text u:text", kinds "2026-07-28")
    assert.equal("u:text a:text u:image u:audio u:resource_link u:resource u:text u:text", kinds "2025-06-18")
    assert.equal("u:text a:text u:image u:audio u:text u:resource u:text u:text", kinds "2025-03-26")
    assert.equal("u:text a:text u:image u:resource u:text u:resource u:text u:text", kinds "2024-11-05")
    local messages = get(vm, "rich", {}, { revision = "2024-11-05" }).messages
    assert.equal("moonpool:audio/4", messages[4].content.resource.uri)
    assert.equal("Y: x:y", messages[5].content.text)
    assert.is_nil(messages[7].content.annotations.lastModified)
    assert.equal("2026-01-01T00:00:00Z", get(vm, "rich", {}).messages[7].content.annotations.lastModified)
  end)

  it("refuse arguments that do not fit, in every era, saying which", function()
    for _, revision in ipairs { "2026-07-28", "2025-11-25", "2025-03-26", "2024-11-05" } do
      for _, row in ipairs {
        { nil, "2 arguments are wrong:\n- argument 'language' is missing\n- argument 'diff' is missing" }, { { language = "c" }, "argument 'diff' is missing" },
        { { language = "c", dif = "" }, "2 arguments are wrong:\n- argument 'diff' is missing\n- there is no argument 'dif': did you mean 'diff'?" },
        { { language = "c", diff = "", extra = "" }, "there is no argument 'extra'" },
        { { language = 1, diff = "" }, "argument 'language' must be a string, got a number (1)" },
        { { language = "c", diff = ("x"):rep(11) }, "argument 'diff' must have at most 10 characters, got 11" },
        { { language = "c", diff = "", focus = "looks" }, 'argument \'focus\' must be one of "bugs", "speed"' },
        { host.json.array { "c" }, "params.arguments must be an object" }, { "c", "params.arguments must be an object" },
      } do
        local result, err = get(vm, "code_review", row[1], { revision = revision })
        assert.is_nil(result)
        assert.equal(-32602, err.code)
        assert.equal(row[2], err.message)
      end
    end
    assert.equal("unknown prompt 'plian': did you mean 'plain'?", select(2, get(vm, "plian")).message)
    assert.equal("params.name must be a string", select(2, get(vm, 7)).message)
  end)

  it("fail with their reason when that was expected, else with an id alone", function()
    local function failing(diff, revision) return select(2, get(vm, "code_review", { language = "c", diff = diff }, { revision = revision })) end
    assert.same({ code = -32603, message = "too dull" }, failing "fail")
    assert.same({ code = -32603, message = "nothing in it" }, failing "nil")
    assert.same({ sampling = {} }, failing("able").data.requiredCapabilities)
    assert.equal(-32603, failing("able", "2025-06-18").code)
    assert.same({}, vm.logs)
    assert.truthy(failing("bug").message:find "^internal error %x%x%x%x$")
    assert.same({ "prompt failed", "code_review" }, { vm.logs[1].event, vm.logs[1].fields.name })
    assert.truthy(failing("nothing").message:find "^internal error")
    assert.truthy(vm.logs[2].fields.why:find("a prompt must return messages", 1, true))
  end)
end)

describe("prompts that are wrong", function()
  after_each(host.stop)

  it("are refused with what to do", function()
    local all = {}
    for i, text in ipairs {
      "return prompt {}", 'return prompt { "A.", argz = {}, "a" }', 'return prompt { "A.", args = { n = t.integer, x = "string" }, "a" }',
      "return function() end", 'return tool { "T.", function() end }', 'return prompt { "A.", args = { s = t.string { complete = "c" } }, "a" }',
    } do all["prompts/p" .. i .. ".lua"] = text end
    all["tools/t.lua"] = 'return tool { "T.", input = { n = t.string { complete = { "a" } } }, function() end }'
    local told = table.concat(host.start(all).errors, "\n")
    for _, part in ipairs {
      "the prompt has no description", "the prompt has no handler", "prompt has no option 'argz'", "hint: did you mean 'args'?",
      "args: 'n' is not a string", "args: 'x' is not a type", "'p4' is a function, not a prompt", "'p5' is a table, not a prompt",
      "t.string: 'complete' must be a list or function, got a string", "input: 'n' cannot be completed",
    } do
      assert.truthy(told:find(part, 1, true), part .. "\n" .. told)
    end
  end)

  it("give messages of one text or one block", function()
    local vm = host.start { ["prompts/p.lua"] =
      'return prompt { "P.", args = { s = t.string { optional = true } }, function(args) return args.s and { 1 } or user {} end }' }
    get(vm, "p")
    get(vm, "p", { s = "" })
    assert.equal("scripts/prompts/p.lua:1: user takes one text or one block, got a table", vm.logs[1].fields.why)
    assert.equal("item 1 of the returned list is a number, not a message", vm.logs[2].fields.why)
  end)
end)
