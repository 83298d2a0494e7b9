-- The scripts of this repository, loaded as the binary loads them.
local host = require "spec.helpers.host"

local function read(root)
  local scripts = {}
  local listing <close> = assert(io.popen("cd " .. root .. " && find . -name '*.lua'"))
  for line in listing:lines() do
    local path = line:sub(3)
    local file <close> = assert(io.open(root .. "/" .. path))
    scripts[path] = file:read "a"
  end
  return scripts
end

local function start(root)
  local vm = host.start(read(root), { root = root })
  assert.is_nil(vm.errors, vm.errors and table.concat(vm.errors, "\n"))
  return vm
end

local function text(vm, name, arguments) return vm:tool(name, arguments).content[1].text end

describe("the example hello", function()
  after_each(host.stop)

  it("adds, greets and counts down", function()
    local vm = start "examples/hello/scripts"
    assert.equal("5", text(vm, "add", { a = 2, b = 3 }))
    assert.equal("Hello, Ann!", text(vm, "greet", { name = "Ann" }))
    assert.equal("Hola, Ann!", text(vm, "greet", { name = "Ann", language = "spanish" }))
    assert.equal("Lift-off!", text(vm, "countdown", {}))
    assert.same({ 1, 1, 1 }, vm.slept)
    assert.same({ method = "notifications/progress", 1, 3, "3..." }, vm.last.sent[1])
    assert.equal("countdown over", vm.logs[1].event)
  end)

  it("knows greetings, and introduces", function()
    local vm = start "examples/hello/scripts"
    assert.equal("Bonjour", vm:call("resources/read", { uri = "greetings://french" }).contents[1].text)
    assert.equal(-32602, select(2, vm:call("resources/read", { uri = "greetings://latin" })).code)
    local messages = vm:call("prompts/get", { name = "introduce", arguments = { first = "Ann", second = "Bo" } }).messages
    assert.equal("Introduce Bo to Ann, in english, in two sentences.", messages[1].content.text)
  end)
end)

describe("the default scripts", function()
  local vm
  before_each(function() vm = start "scripts" end)
  after_each(host.stop)

  it("calculate", function()
    for expression, value in pairs {
      ["1 + 2 * 3"] = "7", ["(1 + 2) * 3"] = "9", ["-2^2"] = "-4", ["2^3^2"] = "512", ["2^-1"] = "0.5", ["7 / 2"] = "3.5", ["7 % 4"] = "3",
      ["sqrt(16) + max(1, 2, 3)"] = "7", ["round(2.5)"] = "3", ["1e3"] = "1000", ["9007199254740993 + 0"] = "9007199254740993",
    } do
      assert.equal(value, text(vm, "calculate", { expression = expression }), expression)
    end
    for expression, complaint in pairs {
      ["1 +"] = "expected a number at column 4", ["(1"] = "expected ')' at column 3", ["1 2"] = "expected an operator at column 3",
      ["1 / 0"] = "division by zero", ["os(1)"] = "expected a number at column 1", [("("):rep(90)] = "the expression is nested too deeply",
    } do
      local result = vm:tool("calculate", { expression = expression })
      assert.equal(complaint, result.content[1].text)
      assert.is_true(result.isError)
    end
    assert.same({}, vm.logs)
  end)

  it("count text", function()
    assert.equal('{"characters":10,"lines":2,"words":2}', text(vm, "text_count", { text = "caf\u{e9}\nb\u{e8}che" }))
    assert.equal('{"characters":0,"lines":0,"words":0}', text(vm, "text_count", { text = "" }))
  end)

  it("choose", function()
    local chosen = text(vm, "choose", { options = host.json.array { "a", "b" }, count = 2 })
    assert.truthy(chosen == "a\nb" or chosen == "b\na")
    assert.equal("there are only 1 options", text(vm, "choose", { options = host.json.array { "a" }, count = 2 }))
  end)

  it("tell the time", function()
    local answer = host.json.decode(text(vm, "now", { than = "2001-09-09T01:46:40Z" }))
    assert.equal(answer.unix - 1000000000, answer.seconds_since)
    assert.truthy(answer.utc:find "^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$")
    assert.equal("'soon' is not a moment such as 2026-07-28T12:00:00Z", text(vm, "now", { than = "soon" }))
    assert.equal("there is no such moment as '2026-13-01'", text(vm, "now", { than = "2026-13-01" }))
  end)

  it("read a moment from its URI", function()
    local answer = vm:call("resources/read", { uri = "moment://2001-09-09T01:46:40Z" })
    assert.equal('{"unix":1000000000,"utc":"2001-09-09T01:46:40Z","weekday":"Sunday"}', answer.contents[1].text)
    assert.equal(86400000, answer.ttlMs)
    assert.same({ uri = "moment://soon" }, select(2, vm:call("resources/read", { uri = "moment://soon" })).data)
    local completion = vm:call("completion/complete", {
      ref = { type = "ref/resource", uri = "moment://{date}" }, argument = { name = "date", value = os.date "!%Y-" },
    }).completion
    assert.is_true(#completion.values >= 1)
  end)

  it("ask for a review", function()
    local messages = vm:call("prompts/get", { name = "review", arguments = { language = "lua", diff = "+x" } }).messages
    assert.truthy(messages[1].content.text:find("Review this lua change. Look for bugs first, .*\n\n%+x$"))
  end)
end)

describe("the conformance fixtures", function()
  after_each(host.stop)

  it("answer what the suite asks for", function()
    local vm = start "examples/conformance/scripts"
    assert.equal("This is a simple text response for testing.", vm:call("tools/call", { name = "test_simple_text" }).content[1].text)
    local image = vm:tool("test_image_content", {}).content[1]
    assert.equal("iVBORw0KGgo", image.data:sub(1, 11))
    local audio = vm:tool("test_audio_content", {}).content[1]
    assert.equal("audio/wav", audio.mimeType)
    assert.equal("UklGR", audio.data:sub(1, 5))
    local resource = vm:tool("test_embedded_resource", {}).content[1].resource
    assert.same({ uri = "test://embedded-resource", mimeType = "text/plain", text = "This is an embedded resource content." }, resource)
    local mixed = vm:tool("test_multiple_content_types", {}).content
    assert.same({ "text", "image", "resource" }, { mixed[1].type, mixed[2].type, mixed[3].type })
    local failed = vm:tool("test_error_handling", {})
    assert.same({ true, "This tool intentionally returns an error for testing" }, { failed.isError, failed.content[1].text })
    vm:tool("test_tool_with_progress", {})
    assert.equal(3, #vm.last.sent)
    vm:call("logging/setLevel", { level = "debug" }, { revision = "2025-11-25" })
    vm:tool("test_tool_with_logging", {}, { revision = "2025-11-25" })
    assert.equal(3, #vm.last.sent)
    vm:tool("test_logging_tool", {})
    assert.equal(0, #vm.last.sent)
    assert.same({ sampling = {} }, select(2, vm:tool("test_missing_capability", {})).data.requiredCapabilities)
    assert.equal("Region: eu", vm:tool("test_header_tool", { region = "eu" }).content[1].text)
    local schema = vm:list().json_schema_2020_12_tool.inputSchema
    assert.equal("addressDef", schema["$defs"].address["$anchor"])
    assert.is_false(schema.additionalProperties)
    assert.is_table(schema["if"])
    local function contents(uri) return vm:call("resources/read", { uri = uri }).contents[1] end
    assert.equal("This is the content of the static text resource.", contents("test://static-text").text)
    assert.equal("iVBORw0KGgo", contents("test://static-binary").blob:sub(1, 11))
    assert.same({ id = "123", templateTest = true, data = "Data for ID: 123" }, host.json.decode(contents("test://template/123/data").text))
    local function message(name, arguments) return vm:call("prompts/get", { name = name, arguments = arguments }).messages[1].content end
    assert.equal("This is a simple prompt for testing.", message("test_simple_prompt").text)
    assert.equal("Prompt with arguments: arg1='a', arg2='b'", message("test_prompt_with_arguments", { arg1 = "a", arg2 = "b" }).text)
    assert.equal("test://x", message("test_prompt_with_embedded_resource", { resourceUri = "test://x" }).resource.uri)
    assert.equal("image/png", message("test_prompt_with_image").mimeType)
  end)
end)
