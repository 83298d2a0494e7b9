-- Whether a person may still sign in: what the provider says when a client asks for another access token, and what a
-- reload changes.
local cjson = require "cjson"
local provider = require "spec.helpers.provider"
local signing_in = require "spec.helpers.signing_in"
local task_client = require "spec.helpers.task_client"
local wait = require "spec.helpers.wait"
local wire = require "spec.helpers.wire"

-- A gateway for which each answer of the provider is old at once.
local function gateway(idp, sign_in, config) return idp:gateway(sign_in, config, { workers = 2, constants = { sign_in_fresh_ms = 0 } }) end

-- Reloads the gateway with other keys of sign_in.
local function reload(g, keys)
  local path = g.dir .. "/moonpool.yaml"
  local file <close> = assert(io.open(path))
  local whole = cjson.decode(file:read "a")
  for name, value in pairs(keys) do whole.sign_in[name] = value end
  local out <close> = assert(io.open(path, "w"))
  out:write(cjson.encode(whole))
  out:close()
  assert.equal(200, g:admin("/reload", "POST").status)
end

describe("a refresh", function()
  it("asks the provider with its own refresh token, of which each is used once", function()
    local idp <close> = provider.start()
    local g <close> = gateway(idp)
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    for _ = 1, 3 do
      local first = idp.last.refresh
      tokens = signing_in.refresh(g, client, tokens.refresh_token):json()
      assert.equal(first, idp.forms[#idp.forms].refresh_token)
      assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    end
    assert.has_nothing_left(g)
  end)

  it("of a person whom the provider has disabled ends all that she has", function()
    local idp <close> = provider.start()
    local g <close> = gateway(idp)
    local client, other = signing_in.register(g), signing_in.register(g, { client_name = "Other" })
    local tokens, others = idp:tokens(g, client), idp:tokens(g, other)
    local bobs = idp:tokens(g, client, "bob")
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, others.access_token)))
    idp.disabled.ann = true
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
    assert.same({ 401, 401 }, { (signing_in.who(g, tokens.access_token)), (signing_in.who(g, others.access_token)) })
    assert.equal("invalid_grant", signing_in.refresh(g, other, others.refresh_token):json().error)
    assert.equal("oidc:1002 notes:read notes:write", (signing_in.who(g, bobs.access_token)))
    idp.disabled.ann = nil
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, idp:tokens(g, client).access_token)))
  end)

  it("of a person who has left the group ends it", function()
    local idp <close> = provider.start()
    idp.people.ann.groups = { "ops" }
    local g <close> = gateway(idp, { allow = { groups = { "ops" } } })
    local client = signing_in.register(g)
    local tokens = signing_in.refresh(g, client, idp:tokens(g, client).refresh_token):json()
    idp.people.ann.groups = { "dev" }
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
  end)

  it("believes no claim that the provider does not repeat", function()
    local idp <close> = provider.start { more = { ann = { groups = { "ops" } } } }
    local g <close> = gateway(idp, { allow = { groups = { "ops" } }, tokens = { unchecked = "1h" } })
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    idp.answer = function(answer) answer.id_token = nil end          -- OpenID Connect Core, 12.2: it may be absent
    tokens = signing_in.refresh(g, client, tokens.refresh_token):json()
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    idp.more.ann.groups = nil
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
  end)

  it("that brings no word about the person counts as no answer", function()
    local idp <close> = provider.start { metadata = function(m) m.userinfo_endpoint = nil end }
    local g <close> = gateway(idp, { tokens = { unchecked = "0s" } })
    local client = signing_in.register(g)
    local tokens = signing_in.refresh(g, client, idp:tokens(g, client).refresh_token):json()
    assert.truthy(tokens.access_token)
    idp.answer = function(answer) answer.id_token = nil end
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
  end)

  it("believes a new ID token while userinfo does not answer", function()
    local idp <close> = provider.start()
    idp.people.ann.groups = { "ops" }
    idp.routes["/userinfo"] = function(_, _, reply) reply:send(503) end
    local g <close> = gateway(idp, { allow = { groups = { "ops" } } })
    local client = signing_in.register(g)
    local tokens = signing_in.refresh(g, client, idp:tokens(g, client).refresh_token):json()
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    idp.people.ann.groups = { "dev" }
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
  end)

  it("believes the provider's new tokens where userinfo refuses them", function()
    local idp <close> = provider.start()
    idp.people.ann.groups = { "ops" }
    local g <close> = gateway(idp, { allow = { groups = { "ops" } } })
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    idp.routes["/userinfo"] = function(_, _, reply) reply:send(401) end
    tokens = signing_in.refresh(g, client, tokens.refresh_token):json()
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    idp.answer = function(answer) answer.id_token = nil end
    tokens = signing_in.refresh(g, client, tokens.refresh_token):json()
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    idp.answer, idp.people.ann.groups = nil, { "dev" }
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
  end)

  it("goes on while the provider does not answer, or an answer is not of it", function()
    local idp <close> = provider.start()
    local g <close> = gateway(idp)
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    for _, refuse in ipairs { { 500, nil, "" }, { 403, nil, "<html>" }, { 429, nil, "" }, { 401, nil, '{"error":"invalid_client"}' } } do
      idp.refuse = refuse
      tokens = signing_in.refresh(g, client, tokens.refresh_token):json()
      assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    end
  end)

  it("ends once the provider could not be asked for sign_in.tokens.unchecked", function()
    local idp <close> = provider.start()
    local g <close> = gateway(idp, { tokens = { unchecked = "0s" } })
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    idp.refuse = { 500, nil, "" }
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
  end)

  it("asks userinfo where the provider gives no refresh token, and ends with the access token", function()
    local idp <close> = provider.start { is_without_refresh = true }
    local g <close> = gateway(idp, { tokens = { unchecked = "0s" } })
    local client = signing_in.register(g)
    local tokens = signing_in.refresh(g, client, idp:tokens(g, client).refresh_token):json()
    assert.equal(1, idp:count "/userinfo")
    idp.disabled.ann = true
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
    idp.disabled.ann, idp.life = nil, 1
    local short = idp:tokens(g, client)
    wait.for_fact("the end of the provider's access token", 5, function()
      local answer = signing_in.refresh(g, client, short.refresh_token):json()
      short = answer.refresh_token and answer or short
      return answer.error == "invalid_grant"
    end)
  end)

  it("that brings another person's ID token or userinfo ends the sign-in", function()
    local idp <close> = provider.start()
    local g <close> = gateway(idp)
    local client = signing_in.register(g)
    for _, what in ipairs { "id_token", "userinfo" } do
      local tokens = idp:tokens(g, client)
      idp[what] = function(claims) claims.sub = "1002" end
      assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
      assert.equal(401, (signing_in.who(g, tokens.access_token)))
      idp[what] = nil
    end
  end)

  it("whose answer comes after a new sign-in of the person ends and changes nothing of that", function()
    local idp <close> = provider.start()
    local g <close> = gateway(idp)
    local client, other = signing_in.register(g), signing_in.register(g, { client_name = "Other" })
    for _, late in ipairs { { error = "invalid_grant" }, { access_token = "x", token_type = "Bearer", refresh_token = "late" } } do
      local tokens, held = idp:tokens(g, client), nil
      idp.hold = function(reply)
        held = reply
        return true
      end
      local connection <close> = g:connect()
      connection:send { method = "POST", path = "/oauth/token",
        headers = { Host = "127.0.0.1:7300", ["Content-Type"] = "application/x-www-form-urlencoded" },
        body = signing_in.form { grant_type = "refresh_token", refresh_token = tokens.refresh_token, client_id = client.client_id } }
      wait.for_fact("the question at the provider", 5, function() return held end)
      idp.hold = nil
      local others = idp:tokens(g, other)
      local newest = idp.last.refresh
      held:send(late.error and 400 or 200, { ["content-type"] = "application/json" }, cjson.encode(late))
      assert.equal(200, connection:read_response().status)
      assert.equal(newest, idp.forms[#idp.forms].refresh_token)
      assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, others.access_token)))
      assert.equal(200, signing_in.refresh(g, other, others.refresh_token).status)
    end
  end)

  it("of many clients of a person at once asks the provider once", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway(nil, nil, { workers = 2, constants = { sign_in_fresh_ms = 2000 } })
    local clients, tokens = {}, {}
    for i = 1, 6 do
      clients[i] = signing_in.register(g, { client_name = "Client " .. i })
      tokens[i] = idp:tokens(g, clients[i])
    end
    local signed_in_at = os.time()
    wait.for_fact("the provider's answer to be old", 5, function() return os.time() >= signed_in_at + 2 end)
    local before, connections = #idp.forms, {}
    for i = 1, 6 do
      connections[i] = g:connect()
      connections[i]:send { method = "POST", path = "/oauth/token",
        headers = { Host = "127.0.0.1:7300", ["Content-Type"] = "application/x-www-form-urlencoded" },
        body = signing_in.form { grant_type = "refresh_token", refresh_token = tokens[i].refresh_token, client_id = clients[i].client_id } }
    end
    for i = 1, 6 do
      assert.equal(200, connections[i]:read_response().status)
      connections[i]:close()
    end
    assert.equal(before + 1, #idp.forms)
  end)

  it("is put off where no background task can be begun, and ends nothing", function()
    local idp <close> = provider.start()
    local slow = 'return tool { "Slow.", task = "required", function() sleep(60) end }'
    local g <close> = idp:gateway(nil, nil, { scripts = { ["tools/slow.lua"] = slow }, constants = { sign_in_fresh_ms = 0, tasks = 1 } })
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    local meta = wire.meta(nil, { ["io.modelcontextprotocol/clientCapabilities"] = task_client.CAN })
    local begun = wire.message(1, "tools/call", { name = "slow", arguments = {}, _meta = meta })
    local headers = { Authorization = "Bearer " .. tokens.access_token }
    local task = wire.post(g, begun, wire.mirrored(begun, headers)):json().result.taskId
    assert.equal(503, signing_in.refresh(g, client, tokens.refresh_token).status)
    local ends = wire.message(2, "tasks/cancel", { taskId = task, _meta = meta })
    headers["Mcp-Name"] = task
    assert.equal(200, wire.post(g, ends, wire.mirrored(ends, headers)).status)
    g:wait_status(function(status) return status.gauges.jobs == 0 end)
    assert.equal(200, signing_in.refresh(g, client, tokens.refresh_token).status)
  end)
end)

describe("a reload", function()
  it("that lets a person in no more ends her access token with the next call", function()
    local idp <close> = provider.start()
    local g <close> = gateway(idp, { allow = { users = { "1001", "1002" } } })
    local client = signing_in.register(g)
    local ann, bob = idp:tokens(g, client), idp:tokens(g, client, "bob")
    reload(g, { allow = { users = { "1001" } } })
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, ann.access_token)))
    assert.equal(401, (signing_in.who(g, bob.access_token)))
    assert.equal("invalid_grant", signing_in.refresh(g, client, bob.refresh_token):json().error)
    reload(g, { scopes = { "notes:read" } })
    assert.equal("oidc:1001 notes:read", (signing_in.who(g, ann.access_token)))
    local next_tokens = signing_in.refresh(g, client, ann.refresh_token):json()
    assert.equal("notes:read", next_tokens.scope)
    assert.equal("oidc:1001 notes:read", (signing_in.who(g, next_tokens.access_token)))
  end)

  it("that takes a scope away takes it away where main.lua decides, too", function()
    local idp <close> = provider.start()
    local who = [[return tool { "Says who calls.", function(_, call) return call.principal.id .. " " .. table.concat(call.principal.scopes, " ") end }]]
    local g <close> = idp:gateway(nil, nil, { scripts = { ["tools/who.lua"] = who, ["sign_in/main.lua"] = "return function() return true end" } })
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    reload(g, { scopes = { "notes:read" } })
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
    tokens = signing_in.refresh(g, client, tokens.refresh_token):json()
    assert.equal("oidc:1001 notes:read", (signing_in.who(g, tokens.access_token)))
  end)

  it("with another provider ends every sign-in and every flow", function()
    local idp <close> = provider.start()
    local other <close> = provider.start()
    local g <close> = gateway(idp)
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    local ann = signing_in.browser(g)
    local path = idp:visit(ann:allow(ann:begin(client)).headers.location, "ann")
    reload(g, { issuer = other.issuer })
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
    assert.equal(403, ann:send("GET", path).status)
    assert.equal(0, #other.server.requests)
  end)

  it("with another provider makes no person of the one with her number there, also by a code from before", function()
    local idp <close> = provider.start()
    local other <close> = provider.start()
    local g <close> = gateway(idp)
    local client = signing_in.register(g)
    local code = idp:code(g, client)
    reload(g, { issuer = other.issuer })
    assert.equal("oidc:1001 notes:read notes:write", (signing_in.who(g, other:tokens(g, client).access_token)))
    local tokens = signing_in.redeem(g, client, code):json()
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
  end)
end)

describe("what is stored of a person", function()
  it("has no token and no claim in clear", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway(nil, { seal_keys = { ("k"):rep(32) }, store = { file = "store.db" } })
    idp:tokens(g, (signing_in.register(g)))
    local bytes = assert(io.open(g.dir .. "/store.db-wal", "rb")):read "a"
    for _, secret in ipairs { idp.last.refresh, idp.last.access, "ann@example.com", "oidc:1001", "notes:read" } do
      assert.is_nil(bytes:find(secret, 1, true), secret)
    end
  end)
end)
