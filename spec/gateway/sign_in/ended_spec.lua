-- SD-01, SY-40: an ended sign-in is known to each worker and process at once: no call begins after it, its streams and calls
-- end.
local client = require "spec.helpers.client"
local signing_in = require "spec.helpers.signing_in"
local upgrading = require "spec.helpers.upgrading"
local uv = require "luv"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

local ANN <const> = "password:ann notes:read notes:write"
local scripts = {
  ["tools/who.lua"] = [[return tool { "Says who calls.", function(_, call) return call.principal.id .. " " .. table.concat(call.principal.scopes, " ") end }]],
  ["tools/slow.lua"] = [[return tool { "Takes long.", function() sleep(60) return "late" end }]],
}

local function revoke(g, of, token) return signing_in.post(g, "/oauth/revoke", { token = token, client_id = of.client_id }).status end

-- Calls on many connections, so that each worker has some.
local function statuses(g, token, count)
  local found = {}
  for i = 1, count do found[i] = (signing_in.who(g, token)) end
  return found
end

local function same(value, count)
  local list = {}
  for i = 1, count do list[i] = value end
  return list
end

local function call(g, token, name)
  return signing_in.request(g, token, wire.message(1, "tools/call", { name = name, arguments = {}, _meta = wire.meta() }))
end

-- A stream of a session, read by GET, and the headers of further requests.
local function stream(g, token)
  local headers = { Accept = wire.both, ["Content-Type"] = "application/json", Authorization = "Bearer " .. token }
  local opened = client.request(g, { method = "POST", path = "/mcp", headers = headers, body = wire.initialize_message "2025-11-25" })
  assert.equal(200, opened.status)
  local connection = g:connect():send { method = "GET", path = "/mcp",
    headers = { Accept = wire.both, Authorization = headers.Authorization, ["Mcp-Session-Id"] = opened.headers["mcp-session-id"] } }
  assert.equal(200, connection:read_head().status)
  return connection
end

describe("a revoked sign-in", function()
  it("is refused by every worker from the moment at which the client is answered", function()
    local g <close> = signing_in.start(nil, { workers = 2 })
    local client_id = signing_in.register(g)
    local tokens, other = signing_in.tokens(g, client_id), signing_in.tokens(g, client_id)
    assert.same(same(ANN, 30), statuses(g, tokens.access_token, 30))
    assert.equal(200, revoke(g, client_id, tokens.refresh_token))
    assert.same(same(401, 30), statuses(g, tokens.access_token, 30))
    assert.same(same(ANN, 10), statuses(g, other.access_token, 10))
    assert.equal(1, g:status().gauges.sign_ins_ended)
    assert.has_nothing_left(g)
  end)

  it("ends its streams and calls on every worker, and nobody else's", function()
    local g <close> = signing_in.start(nil, { workers = 2, scripts = scripts })
    local client_id = signing_in.register(g)
    local ann, bob = signing_in.tokens(g, client_id), signing_in.tokens(g, client_id, nil, "bob")
    local gone, stay = {}, {}
    for i = 1, 4 do
      gone[#gone + 1], stay[#stay + 1] = call(g, ann.access_token, "slow"), call(g, bob.access_token, "slow")
      gone[#gone + 1], stay[#stay + 1] = signing_in.listen(g, ann.access_token), signing_in.listen(g, bob.access_token)
      if i < 3 then gone[#gone + 1], stay[#stay + 1] = stream(g, ann.access_token), stream(g, bob.access_token) end
    end
    g:wait_status(function(status) return status.gauges.requests_in_flight == 8 end)
    local began = uv.hrtime()
    assert.equal(200, revoke(g, client_id, ann.access_token))
    for _, connection in ipairs(gone) do wait.for_fact("the end of a stream", 5, function() return signing_in.has_ended(connection) end) end
    assert.is_true((uv.hrtime() - began) / 1e9 < 3, "it took " .. (uv.hrtime() - began) / 1e9)
    assert.truthy(gone[1]:read_response().body:find("the sign-in has ended", 1, true))
    for _, connection in ipairs(stay) do assert.is_false(signing_in.has_ended(connection)) end
    assert.equal(8, g:status().counters.tool_aborted.signed_out)
    for _, list in ipairs { gone, stay } do
      for _, connection in ipairs(list) do connection:close() end
    end
  end)

  it("stays ended where its process is upgraded, and the older process hears of one, too", function()
    local options = signing_in.options({ seal_keys = { ("k"):rep(32) }, store = { file = "store.db" } }, { workers = 1 })
    local g <close> = upgrading.start_quick(options)
    local client_id = signing_in.register(g)
    local before, after, bob = signing_in.tokens(g, client_id), signing_in.tokens(g, client_id), signing_in.tokens(g, client_id, nil, "bob")
    assert.equal(200, revoke(g, client_id, before.access_token))
    local watched, other = stream(g, after.access_token), stream(g, bob.access_token)
    g:must_upgrade()
    assert.equal(1, #g:older())
    assert.same(same(401, 3), statuses(g, before.access_token, 3))
    assert.same(same(ANN, 3), statuses(g, after.access_token, 3))
    assert.equal(200, revoke(g, client_id, after.access_token))
    assert.same(same(401, 3), statuses(g, after.access_token, 3))
    wait.for_fact("the end of a stream of the older process", 5, function() return signing_in.has_ended(watched) end)
    assert.is_false(signing_in.has_ended(other))
    watched:close()
    other:close()
  end)
end)
