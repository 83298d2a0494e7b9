-- Forged and broken tokens at the gateway: in every revision and on every path, none is accepted and none costs more
-- than one check of a signature (B-71, B-118); clients with valid tokens are not affected.
local client = require "spec.helpers.client"
local forged = require "spec.helpers.forged"
local gateway = require "spec.helpers.gateway"
local tokens = require "spec.helpers.tokens"
local wait = require "spec.helpers.wait"

local ctx = forged.context()

local auth = ("return auth.jwt { issuer = %q, audience = %q, jwks = json.decode [==[%s]==] }"):format(tokens.ISSUER, tokens.AUDIENCE,
  tokens.jwks(ctx.issuer, ctx.rsa, ctx.ed, tokens.issuer("ES256", "k4")))

local who = "return tool { 'Who.', function(_, call) return call.principal.id end }"

local function start(options)
  options = options or {}
  options.scripts = options.scripts or { ["auth/main.lua"] = auth, ["tools/who.lua"] = who }
  options.workers = 1
  options.config = options.config or { endpoints = { sse = "/sse", messages = "/messages" } }
  return gateway.start(options)
end

local function initialize(revision)
  local params = { protocolVersion = revision, capabilities = {}, clientInfo = { name = "spec", version = "1" } }
  return { jsonrpc = "2.0", id = 1, method = "initialize", params = params }
end

local META = { ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = {},
  ["io.modelcontextprotocol/clientInfo"] = { name = "spec", version = "1" } }

local BOTH = "application/json, text/event-stream"

-- All combinations of revision and path that are served.
local function requests()
  local list = {}
  for _, revision in ipairs { "2025-03-26", "2025-06-18", "2025-11-25" } do
    list[#list + 1] = { method = "POST", path = "/mcp", body = initialize(revision), headers = { accept = BOTH } }
  end
  list[#list + 1] = { method = "POST", path = "/mcp", headers = {
    accept = BOTH, ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "who",
  }, body = { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "who", _meta = META } } }
  list[#list + 1] = { method = "GET", path = "/mcp", headers = { accept = "text/event-stream", ["mcp-session-id"] = "none" } }
  list[#list + 1] = { method = "DELETE", path = "/mcp", headers = { ["mcp-session-id"] = "none" } }
  list[#list + 1] = { method = "GET", path = "/sse", headers = { accept = "text/event-stream" } }
  list[#list + 1] = { method = "POST", path = "/messages?session=none", body = initialize "2024-11-05", headers = {} }
  return list
end

local function verifications(g) return g:status().counters.jwt_verifications end

local function send(connection, request, authorization)
  local headers = { Authorization = authorization }
  for name, value in pairs(request.headers) do headers[name] = value end
  return connection:request { method = request.method, path = request.path, body = request.body, headers = headers }
end

local function ask_who(g, token)
  local connection <close> = client.connect(g)
  local response = send(connection, requests()[4], "Bearer " .. token)
  local answer = response:json()
  return response.status == 200 and answer.result.content[1].text or response.status
end

describe("a token that no issuer made for this server", function()
  it("is refused in every revision, with one check of a signature at most", function()
    local g <close> = start()
    assert.equal("alice", ask_who(g, ctx.issuer:token()))
    local list = forged.tokens(ctx)
    assert.is_true(#list >= 60)
    local all = requests()
    local connection <close> = client.connect(g)
    local before = verifications(g)
    for _, one in ipairs(list) do
      for _, request in ipairs(all) do
        local response = send(connection, request, "Bearer " .. one.token)
        assert.equal(401, response.status, one.name .. ": " .. request.method .. " " .. request.path)
        assert.matches('^Bearer .*error="invalid_token"', response.headers["www-authenticate"])
      end
      local after = verifications(g)
      assert.is_true(after - before <= 1, one.name .. " costs " .. after - before)
      before = after
    end
    assert.equal("alice", ask_who(g, ctx.issuer:token()))
    assert.equal("bob", ask_who(g, ctx.ed:token { sub = "bob" }))
    local log = g:log()
    for _, one in ipairs(list) do assert.is_nil(#one.token > 20 and log:find(one.token, 1, true) or nil) end
    assert.equal(0, g:status().gauges.sessions.http + g:status().gauges.sessions.sse)
    connection:close()
    assert.has_nothing_left(g)
  end)

  it("need not be a token: any value of Authorization is 401 and the process goes on (B-71)", function()
    local g <close> = start()
    for _, one in ipairs(forged.headers(ctx)) do
      for _, request in ipairs(requests()) do
        local connection <close> = client.connect(g)
        local response = send(connection, request, one.value)
        assert.equal(401, response.status, one.name)
        assert.is_string(response.headers["www-authenticate"], one.name)
      end
    end
    assert.equal(0, verifications(g))
    assert.equal("alice", ask_who(g, ctx.issuer:token()))
    assert.is_true(g:is_alive())
    assert.has_nothing_left(g)
  end)

  it("delays no client whose token is cached", function()
    local g <close> = start()
    local good = ctx.issuer:token()
    assert.equal("alice", ask_who(g, good))
    local flood = {}
    for i = 1, 60 do
      flood[i] = client.connect(g)
      flood[i]:send { method = "POST", path = "/mcp", body = initialize "2025-11-25",
        headers = { accept = BOTH, Authorization = "Bearer " .. ctx.stranger:token { jti = tostring(i) } } }
    end
    assert.equal("alice", ask_who(g, good))
    for _, connection in ipairs(flood) do
      assert.equal(401, connection:read_response().status)
      connection:close()
    end
    assert.has_nothing_left(g)
  end)
end)

describe("a good token", function()
  it("is checked once, however many clients bring it", function()
    local g <close> = start()
    local good = ctx.rsa:token()
    for _ = 1, 20 do assert.equal("alice", ask_who(g, good)) end
    assert.equal(1, verifications(g))
    assert.has_nothing_left(g)
  end)

  it("gives scopes, claims, subject and client", function()
    local g <close> = start { scripts = { ["auth/main.lua"] = auth, ["tools/who.lua"] = [[
      return tool { "Who.", function(_, call)
        local p = call.principal
        return table.concat({ p.id, table.concat(p.scopes, "+"), p.claims.client_id, p.claims.tenant or "-" }, " ")
      end }]] } }
    assert.equal("alice notes:read+notes:write desk acme", ask_who(g, ctx.issuer:token { tenant = "acme" }))
    assert.equal("alice a+b desk -", ask_who(g, ctx.issuer:token { scope = tokens.json.null, scp = tokens.json.array { "b", "a" } }))
    assert.equal("client:robot  robot -", ask_who(g, ctx.issuer:token { sub = tokens.json.null, scope = tokens.json.null, client_id = "robot" }))
    for _, more in ipairs {
      { scope = 7 }, { scope = 'a"b' }, { sub = "local" }, { sub = ("x"):rep(600) }, { sub = tokens.json.null, client_id = tokens.json.null },
    } do
      assert.equal(401, ask_who(g, ctx.issuer:token(more)))
    end
    assert.has_nothing_left(g)
  end)

  it("for the address in public_url is for this server", function()
    local script = ("return auth.jwt { issuer = %q, key = [[%s]] }"):format(tokens.ISSUER, ctx.issuer.pem)
    local g <close> = start { scripts = { ["auth/main.lua"] = script, ["tools/who.lua"] = who },
      config = { public_url = "https://mcp.test", hosts = { "*" } } }
    assert.equal("alice", ask_who(g, ctx.issuer:token { aud = "https://mcp.test/mcp" }))
    assert.equal(401, ask_who(g, ctx.issuer:token { aud = "https://mcp.test" }))
    assert.has_nothing_left(g)
  end)
end)

describe("a table that a function returns for every token of one principal", function()
  it("is not changed by them: a token that lives long is valid after a short one has expired, and its streams go on", function()
    local script = ([[local people = { alice = { id = "alice" } }
      return auth.jwt { issuer = %q, audience = %q, leeway = 0, jwks = json.decode [==[%s]==], function(claims) return people[claims.sub] end }]])
      :format(tokens.ISSUER, tokens.AUDIENCE, tokens.jwks(ctx.issuer))
    local g <close> = start { scripts = { ["auth/main.lua"] = script, ["tools/who.lua"] = who } }
    local short = ctx.issuer:token { exp = os.time() + 6 } -- the machine may stand still before its stream is open
    local long = ctx.issuer:token { exp = os.time() + 600 }
    local mine, other = g:client("2026-07-28", { token = short }), g:client("2026-07-28", { token = long })
    local ends = mine:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    local stays = other:open("subscriptions/listen", { notifications = { toolsListChanged = true } })
    ends:wait_event "notifications/subscriptions/acknowledged"
    stays:wait_event "notifications/subscriptions/acknowledged"
    ends.connection:wait_end(20)
    wait.for_fact("the short one to end", 20, function() return ask_who(g, short) == 401 end)
    assert.equal("alice", ask_who(g, long))
    assert.equal(1, g:status().gauges.listeners)
    stays:hang_up()
    mine:close()
    other:close()
    assert.has_nothing_left(g)
  end)
end)
