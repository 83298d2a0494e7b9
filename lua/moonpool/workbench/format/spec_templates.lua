-- The specs that `moonpool new` writes beside its scripts. Each passes unchanged, and is an example of what a spec can
-- check.

local templates = {}

templates.tool = [[
-- What the tool promises: moonpool test runs this. docs/reference/testing.md says what a spec can do.
describe("@NAME@", function()
  it("greets as many times as requested", function()
    local result = assert(call("@NAME@", { name = "Ann", times = 2 }))
    assert.equal("Hello, Ann!\nHello, Ann!", result.text)
    assert.equal(2, #notified "progress")
  end)

  it("refuses arguments that do not fit", function()
    local result, why = call("@NAME@", { name = "", times = 2 })
    assert.is_nil(result)
    assert.contains("name", why)
  end)
end)
]]

templates.resource = [[
-- What the resource promises: moonpool test runs this. docs/reference/testing.md says what a spec can do.
describe("@NAME@", function()
  it("has a title", function()
    local document = json.decode(assert(read "example://@NAME@/7").text)
    assert.equal("The title of 7", document.title)
  end)

  it("is not found by an id that is no number", function() assert.is_nil((read "example://@NAME@/x")) end)
end)
]]

templates.prompt = [[
-- What the prompt promises: moonpool test runs this. docs/reference/testing.md says what a spec can do.
describe("@NAME@", function()
  it("asks about the subject, briefly by default", function()
    local messages = assert(get_prompt("@NAME@", { subject = "tea" }))
    assert.equal("Write about tea. Keep it brief.", messages[1].content.text)
  end)
end)
]]

templates.job = [[
-- What the job promises: moonpool test runs this. docs/reference/testing.md says what a spec can do.
describe("@NAME@", function()
  it("counts its runs", function()
    local before = store.get "@NAME@:runs" or 0
    assert(run_job "@NAME@")
    assert.equal(before + 1, store.get "@NAME@:runs")
  end)
end)
]]

templates.policy = [[
-- What the policy promises: moonpool test runs this. docs/reference/testing.md says what a spec can do.
describe("@NAME@", function()
  it("lets calls through, and changes nothing", function()
    local function answer(args) return "Hello, " .. args.name end
    assert.equal("Hello, Ann", run_policy("@NAME@", { tool = "greet", args = { name = "Ann" }, as = "ann" }, answer))
  end)
end)
]]

templates.auth = [[
-- Who can authenticate: moonpool test runs this. docs/reference/testing.md says what a spec can do.
describe("@NAME@", function()
  it("refuses a request without a key", function()
    local who, why = authenticate { headers = {} }
    assert.is_nil(who)
    assert.contains("x-api-key", why)
  end)

  it("refuses a key that it does not know", function()
    assert.same({ nil, "unknown API key" }, { authenticate { headers = { ["x-api-key"] = "no such key" } } })
  end)
end)
]]

templates.lib = [[
-- What the library promises: moonpool test runs this. docs/reference/testing.md says what a spec can do.
local @ID@ = require "@NAME@"

describe("@NAME@", function()
  it("tidies names", function() assert.equal("Ann Lee", @ID@.tidy "  Ann   Lee ") end)
end)
]]

return templates
