local host = require "spec.helpers.host"

local able = { elicitation = { url = { x = 1 } } }

local function tool(body) return { ["tools/it.lua"] = "return tool { 'It.', function(_, call) " .. body .. " end }" } end

local sign_in = tool [[
  local ok, why = call:elicit_url("sign_in", "Sign in", "https://example.com/in")
  if not ok then return nil, why end
  call:url_done "sign_in"
  return "in"
]]

describe("call:elicit_url", function()
  after_each(host.stop)

  it("sends the user to a page, and says when that is done, in 2025-11-25", function()
    local vm = host.start(sign_in)
    local result = vm:tool("it", {}, { revision = "2025-11-25", has_session = true, capabilities = able, answers = { { action = "accept" } } })
    assert.equal("in", result.content[1].text)
    local asked = vm.asked[1]
    assert.equal("elicitation/create", asked.method)
    assert.equal(32, #asked.params.elicitationId)
    assert.same({ mode = "url", message = "Sign in", url = "https://example.com/in", elicitationId = asked.params.elicitationId }, asked.params)
    assert.same({ { jsonrpc = "2.0", method = "notifications/elicitation/complete", params = { elicitationId = asked.params.elicitationId } } }, vm.last.sent)
  end)

  it("is a question of the answer in 2026-07-28, where nothing is said when it is done", function()
    local vm = host.start(sign_in)
    local result = vm:tool("it", {}, { capabilities = able })
    assert.same({ method = "elicitation/create", params = { mode = "url", message = "Sign in", url = "https://example.com/in" } },
      result.inputRequests.sign_in)
    result = vm:call("tools/call", { name = "it", inputResponses = { sign_in = { action = "accept" } } }, { capabilities = able })
    assert.equal("in", result.content[1].text)
    assert.same({}, vm.last.sent)
  end)

  it("gives the user's no, and 'unsupported' where there are no such pages", function()
    local vm = host.start(sign_in)
    for action, why in pairs { decline = "declined", cancel = "cancelled" } do
      local said = { revision = "2025-11-25", has_session = true, capabilities = able, answers = { { action = action } } }
      assert.equal(why, vm:tool("it", {}, said).content[1].text)
      said = vm:call("tools/call", { name = "it", inputResponses = { sign_in = { action = action } } }, { capabilities = able })
      assert.equal(why, said.content[1].text)
    end
    for revision, capabilities in pairs { ["2025-11-25"] = { elicitation = {} }, ["2026-07-28"] = {}, ["2025-06-18"] = able } do
      local result = vm:tool("it", {}, { revision = revision, has_session = revision ~= "2026-07-28", capabilities = capabilities })
      assert.equal("unsupported", result.content[1].text, revision)
    end
  end)

  it("takes web addresses without credentials alone", function()
    for _, url in ipairs { "ftp://x/", "https://me:secret@x/", "https://me@x/", "javascript:alert(1)", "https:///x", "https://x/ y", "" } do
      local vm = host.start(tool(("call:elicit_url('k', 'Go', %q)"):format(url)))
      assert.equal("internal error 7f3a", vm:tool("it", {}, { capabilities = able }).content[1].text, url)
    end
    local vm = host.start(tool "call:elicit_url('k', 'Go', 'HTTP://x.example/a?mail=a@b')")
    assert.equal("input_required", vm:tool("it", {}, { capabilities = able }).resultType)
  end)

  it("goes with other questions", function()
    local vm = host.start(tool "local got = call:ask { a = ask.elicit_url('Go', 'https://x/'), b = ask.elicit('Name?', { n = t.string }) } return got.b.n")
    local both = { elicitation = { url = { x = 1 }, form = { x = 1 } } }
    local result = vm:tool("it", {}, { capabilities = both })
    assert.equal("url", result.inputRequests.a.params.mode)
    assert.equal("form", result.inputRequests.b.params.mode)
  end)
end)

describe("call:needs_url", function()
  after_each(host.stop)

  local scripts = tool "call:needs_url('k', 'Sign in first', 'https://example.com/in') return 'never'"

  it("is an error of its own in 2025-11-25", function()
    local vm = host.start(scripts)
    local _, err = vm:tool("it", {}, { revision = "2025-11-25", has_session = true, capabilities = able })
    assert.equal(-32042, err.code)
    local page = err.data.elicitations[1]
    assert.same({ mode = "url", message = "Sign in first", url = "https://example.com/in", elicitationId = page.elicitationId }, page)
    assert.equal(32, #page.elicitationId)
  end)

  it("asks each time in 2026-07-28, until the user does not want to", function()
    local vm = host.start(scripts)
    assert.equal("input_required", vm:tool("it", {}, { capabilities = able }).resultType)
    local function again(action)
      return vm:call("tools/call", { name = "it", inputResponses = { k = { action = action } } }, { capabilities = able })
    end
    assert.equal("input_required", again("accept").resultType)
    assert.equal("Sign in first: declined", again("decline").content[1].text)
  end)

  it("names the page where the client cannot send its user to it", function()
    local vm = host.start(scripts)
    for revision, capabilities in pairs { ["2025-11-25"] = {}, ["2026-07-28"] = {}, ["2025-06-18"] = able, ["2024-11-05"] = able } do
      local result = vm:tool("it", {}, { revision = revision, has_session = revision ~= "2026-07-28", capabilities = capabilities })
      assert.equal("Sign in first: https://example.com/in", result.content[1].text, revision)
      assert.is_true(result.isError)
    end
  end)
end)

describe("fail_request", function()
  after_each(host.stop)

  it("is an error of the request, in every revision and kind", function()
    for _, revision in ipairs { "2024-11-05", "2025-11-25", "2026-07-28" } do
      local vm = host.start {
        ["tools/it.lua"] = "return tool { 'It.', function() pcall(function() end) fail_request(-32602, 'no', { a = 1 }) end }",
        ["prompts/it.lua"] = "return prompt { 'It.', function() fail_request(1234, 'no') end }",
      }
      assert.same({ code = -32602, message = "no", data = { a = 1 } }, select(2, vm:tool("it", {}, { revision = revision })))
      assert.same({ code = 1234, message = "no" }, select(2, vm:call("prompts/get", { name = "it" }, { revision = revision })))
      assert.same({}, vm.logs)
    end
  end)

  it("has no codes that the protocol keeps for itself", function()
    for _, code in ipairs { "-32021", "-32000", "-32700", "1.5", "'x'" } do
      local vm = host.start(tool("fail_request(" .. code .. ", 'no')"))
      assert.equal("internal error 7f3a", vm:tool("it", {}).content[1].text, code)
    end
  end)
end)
