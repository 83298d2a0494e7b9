-- A missing scope that a client can request: the answer is 403 with a challenge that names it, and the handler has not
-- run (A-5, A-6).
-- proves: scopes that are asked for when they are needed 2025-03-26.. http
local scoped = require "spec.helpers.scoped"

local function challenge_of(response)
  local found, text = {}, assert(response.headers["www-authenticate"], "no challenge: " .. response.status .. " " .. response.body)
  assert.matches("^Bearer ", text)
  for name, value in text:gmatch '([%w_]+)="([^"]*)"' do found[name] = value end
  return found
end

describe("step-up", function()
  for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
    it("is a 403 with all scopes that are needed, at " .. revision, function()
      local g <close> = scoped.start()
      local me = g:client(revision, { token = "bob" })
      for _, case in ipairs {
        { "tools/call", { name = "orders_write" }, "orders:write" }, { "tools/call", { name = "orders_both" }, "orders:write" },
        { "tools/call", { name = "orders_read", _meta = { progressToken = 1 } }, "orders:read" },
        { "tools/call", { name = "orders_drop", arguments = { all = true } }, "orders:write" },
      } do
        local answer, response = me:call(case[1], case[2])
        assert.equal(403, response.status, response.body)
        local challenge = challenge_of(response)
        assert.equal("insufficient_scope", challenge.error)
        assert.equal(case[3], challenge.scope)
        assert.equal(("http://127.0.0.1:%d/.well-known/oauth-protected-resource/mcp"):format(g.port), challenge.resource_metadata)
        assert.equal("2.0", answer.jsonrpc)
        assert.equal(-32602, answer.error.code)
        assert.matches("needs the scope " .. case[3], answer.error.message, 1, true)
      end
      assert.equal("dropped", me:result("tools/call", { name = "orders_drop" }).content[1].text)
      me.token = "bob.orders_write" -- as a client does after it has requested the scope
      assert.equal("written", me:result("tools/call", { name = "orders_write" }).content[1].text)
      assert.equal("read", me:result("tools/call", { name = "orders_read" }).content[1].text) -- a broader scope includes a narrower one
      assert.equal("dropped", me:result("tools/call", { name = "orders_drop", arguments = { all = true } }).content[1].text)
      if me.delete then me:delete() end
      me:close()
      assert.has_nothing_left(g)
    end)
  end

  it("names the scopes that the token has and those that are needed, so that the next token has them all", function()
    local g <close> = scoped.start()
    local many = "bob" -- so many that a header with all of them is refused by proxies
    for i = 1, 9 do many = many .. "." .. ("y"):rep(500) .. i end
    for token, scope in pairs {
      [many] = "orders:write", ["bob.orders_read"] = "orders:read orders:write", ["bob.audit"] = "audit orders:write",
      ["bob.audit.orders_read.x"] = "audit orders:read x orders:write",
    } do
      local me = g:client("2026-07-28", { token = token })
      local answer, response = me:call("tools/call", { name = "orders_write" })
      assert.same({ 403, scope }, { response.status, challenge_of(response).scope })
      assert.equal("this needs the scope orders:write", answer.error.message)
      me:close()
    end
    assert.matches("cause=scopes[^\n]*why=orders:write", g:log())
  end)

  it("is an error over HTTP+SSE, whose answers have no status", function()
    local g <close> = scoped.start()
    local me = g:client("2024-11-05", { token = "bob" })
    local answer, posted = me:call("tools/call", { name = "orders_write" })
    assert.equal(202, posted.status)
    assert.is_nil(posted.headers["www-authenticate"])
    assert.equal(-32602, answer.error.code)
    assert.equal("this needs the scope orders:write", answer.error.message)
    me:close()
  end)

  it("is an error for its part of a batch", function()
    local g <close> = scoped.start()
    local me = g:client("2025-03-26", { token = "bob" })
    local response = me:post { me:message("tools/call", { name = "orders_write" }), me:message("tools/call", { name = "open" }) }
    assert.equal(200, response.status)
    assert.is_nil(response.headers["www-authenticate"])
    local by_id = {}
    for _, answer in ipairs(response:json()) do by_id[answer.id] = answer end
    assert.equal("this needs the scope orders:write", by_id[me.ids - 1].error.message)
    assert.equal("open", by_id[me.ids].result.content[1].text)
    me:close()
  end)

  it("is only for scopes that the auth scripts offer", function()
    local g <close> = scoped.start()
    local me = g:client("2026-07-28", { token = "bob" })
    local answer, response = me:call("tools/call", { name = "orders_audit" })
    assert.equal(400, response.status)
    assert.equal("unknown tool 'orders_audit'", answer.error.message)
    me:close()
  end)

  it("is an error on a stream that has begun", function()
    local g <close> = scoped.start { ["tools/late.lua"] = [[
return tool { "Late.", function(_, call)
  call:progress(1)
  call:needs "orders:write"
end }]] }
    local me = g:client("2026-07-28", { token = "bob" })
    local stream = me:open("tools/call", { name = "late", _meta = { progressToken = 1 } })
    assert.equal(200, stream:head().status)
    assert.equal("this needs the scope orders:write", stream:answer().error.message)
    me:close()
  end)

  it("fails the tool where the client cannot be asked for the scope", function()
    local g <close> = scoped.start { ["tools/odd.lua"] = 'return tool { "Odd.", function(_, call) call:needs("audit", "orders:read") end }' }
    local me = g:client("2026-07-28", { token = "bob.orders_read" })
    local result = me:result("tools/call", { name = "odd" })
    assert.is_true(result.isError)
    assert.equal("this needs the scope audit, which bob does not have", result.content[1].text)
    me:close()
  end)
end)
