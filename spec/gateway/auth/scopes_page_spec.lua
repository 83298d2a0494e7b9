-- docs/explanation/authorization.md: its file loads, and moonpool explain prints what the page shows.
local gateway = require "spec.helpers.gateway"
local example = require "spec.helpers.example"

describe("the page about scopes", function()
  it("has a file that loads, and is explained as it says", function()
    local page = example.read "docs/explanation/authorization.md"
    local block = page:match "```lua\n(.-)```"
    local dir = gateway.prepare { config = {}, files = {
      [assert(block:match "^%-%- (scripts/%S+%.lua)\n")] = block,
      ["scripts/auth/main.lua"] = [[
return auth { function(request) return { id = try(request.bearer, "no token"), scopes = request.headers["x-scopes"] } end }]],
    } }
    local code, _, err = gateway.exec({ "check" }, { cwd = dir })
    assert.same({ 0, "" }, { code, err })
    local _, told = gateway.exec({ "explain", "ann", "orders_refund", "--scopes", "orders:read" }, { cwd = dir })
    assert.equal(page:match "```text\n(who .-)```", told)
    gateway.run_program("/bin/rm", { "-r", dir })
  end)
end)
