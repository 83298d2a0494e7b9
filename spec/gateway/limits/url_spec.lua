-- Questions that send the user to a web page, in the revisions that have them. Rules EL-4 to EL-7.
local gateway = require "spec.helpers.gateway"

local able = { elicitation = { url = { [" "] = 1 } } }

local scripts = {
  ["tools/go.lua"] = [[
return tool { "Go.", function(_, call)
  local went, why = call:elicit_url("page", "Sign in", "https://example.com/in")
  if not went then return nil, why end
  call:url_done "page"
  return "signed in"
end }]],
  ["tools/needs.lua"] = [[return tool { "Needs.", function(_, call) call:needs_url("page", "Sign in first", "https://example.com/in") end }]],
}

describe("a page for the user", function()
  it("is requested on the call's stream in 2025-11-25, and its completion is notified there", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client("2025-11-25", { capabilities = able })
    local stream = c:open("tools/call", { name = "go" })
    local question = stream:wait_event("elicitation/create").json
    assert.equal("url", question.params.mode)
    assert.equal("https://example.com/in", question.params.url)
    c:post { jsonrpc = "2.0", id = question.id, result = { action = "accept" } }
    assert.equal("signed in", stream:answer().result.content[1].text)
    assert.equal(question.params.elicitationId, stream:wait_event("notifications/elicitation/complete").json.params.elicitationId)
    local err = c:call("tools/call", { name = "needs" }).error
    assert.equal(-32042, err.code)
    assert.equal("https://example.com/in", err.data.elicitations[1].url)
    c:delete()
    c:close()
    assert.has_nothing_left(g)
  end)

  it("is a part of the answer in 2026-07-28, and words elsewhere", function()
    local g <close> = gateway.start { scripts = scripts }
    local c <close> = g:client("2026-07-28", { capabilities = able })
    local result = c:result("tools/call", { name = "go" })
    assert.same({ mode = "url", message = "Sign in", url = "https://example.com/in" }, result.inputRequests.page.params)
    local accepted = { page = { action = "accept" } }
    assert.equal("signed in", c:result("tools/call", { name = "go", inputResponses = accepted }).content[1].text)
    assert.equal("input_required", c:result("tools/call", { name = "needs", inputResponses = accepted }).resultType)
    local old <close> = g:client("2025-06-18", { capabilities = able })
    assert.equal("unsupported", old:result("tools/call", { name = "go" }).content[1].text)
    assert.equal("Sign in first: https://example.com/in", old:result("tools/call", { name = "needs" }).content[1].text)
    old:delete()
    old:close()
    c:close()
    assert.has_nothing_left(g)
  end)
end)
