-- A bearer token that was valid a moment ago is accepted again without running an auth script, but no longer than it is
-- valid, and only if the script reads nothing but the token.
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local tokens = require "spec.helpers.tokens"
local wait = require "spec.helpers.wait"

local who = [[return tool { "Who.", function(_, call) return call.principal.id end }]]

local BODY = { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "who", _meta = {
  ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = {} } } }

local function ask(connection, headers)
  local all = { accept = "application/json, text/event-stream", ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "who" }
  for name, value in pairs(headers) do all[name] = value end
  local response = connection:request { method = "POST", path = "/mcp", headers = all, body = BODY }
  return response.status == 200 and response:json().result.content[1].text or response.status
end

local function bearer(token) return { authorization = "Bearer " .. token } end

describe("a bearer token that was valid a moment ago", function()
  local key = tokens.issuer("ES256", "k1")
  local jwt = ("return auth.jwt { issuer = %q, audience = %q, key_file = 'k.pem', leeway = 0 }"):format(tokens.ISSUER, tokens.AUDIENCE)

  local function start(scripts)
    scripts["tools/who.lua"] = who
    return gateway.start { workers = 1, scripts = scripts, files = { ["k.pem"] = key.pem },
      config = { scripts = { path = "scripts", grants = { ["auth/"] = { read = { "k.pem" } } } } } }
  end

  it("is authenticated again and again with one check of its signature", function()
    local g <close> = start { ["auth/main.lua"] = jwt }
    local connection <close> = client.connect(g)
    local token = key:token()
    for _ = 1, 5 do assert.equal("alice", ask(connection, bearer(token))) end
    assert.equal(401, ask(connection, bearer(token:sub(1, -11) .. (token:sub(-10, -10) == "A" and "B" or "A") .. token:sub(-9))))
    assert.equal(401, ask(connection, bearer(token .. "A")))
    assert.equal(401, ask(connection, {}))
    assert.equal("alice", ask(connection, { authorization = "bearer   " .. token }))
    assert.equal(2, g:status().counters.jwt_verifications)          -- one of these checks was for the forged token
  end)

  it("is refused from the second in which it expires", function()
    local g <close> = start { ["auth/main.lua"] = jwt }
    local connection <close> = client.connect(g)
    local ends = os.time() + 6
    local token = key:token { exp = ends }
    assert.equal("alice", ask(connection, bearer(token)))
    wait.for_fact("401", 20, function() return ask(connection, bearer(token)) == 401 end)
    assert.is_true(os.time() >= ends)
  end)

  it("is checked again if an earlier script may decide otherwise", function()
    local g <close> = start { ["auth/main.lua"] = jwt,
      ["auth/first.lua"] = [[return auth { function(request) return request.headers["x-me"] and { id = request.headers["x-me"] } end }]] }
    local connection <close> = client.connect(g)
    local headers = bearer(key:token())
    for _ = 1, 2 do assert.equal("alice", ask(connection, headers)) end
    headers["x-me"] = "bob"
    assert.equal("bob", ask(connection, headers))
  end)

  it("is checked again by scripts that are saved later", function()
    local g <close> = start { ["auth/main.lua"] = jwt }
    local connection <close> = client.connect(g)
    local token = key:token()
    for _ = 1, 2 do assert.equal("alice", ask(connection, bearer(token))) end
    local file = assert(io.open(g.dir .. "/scripts/auth/main.lua", "w"))
    file:write "return auth { function() return nil, 'closed' end }"
    file:close()
    g:wait_log("reloaded", { generation = 2 })
    assert.equal(401, ask(connection, bearer(token)))
  end)

  it("is refused within five seconds once the script's function looks it up as revoked", function()
    local looks_up = ([[return auth.jwt { issuer = %q, audience = %q, key_file = 'k.pem', function(claims)
      store.incr("asked:" .. claims.sub)
      if store.get("revoked:" .. claims.sub) then return nil, "revoked" end
      return { id = claims.sub, scopes = {}, claims = claims }
    end }]]):format(tokens.ISSUER, tokens.AUDIENCE)
    local script = "return tool { 'Revokes.', function(_, call) store.set('revoked:' .. call.principal.id, true) return 'done' end }"
    local asked = "return tool { 'Counts.', function() return store.get 'asked:bob' end }"
    local g <close> = start { ["auth/main.lua"] = looks_up, ["tools/revoke.lua"] = script, ["tools/asked.lua"] = asked }
    local connection <close> = client.connect(g)
    local alice, bob = bearer(key:token()), bearer(key:token { sub = "bob" })
    for _ = 1, 20 do assert.equal("bob", ask(connection, bob)) end
    local me <close> = g:client("2026-07-28", { token = bob.authorization:sub(8) })
    assert.equal("1", me:result("tools/call", { name = "asked" }).content[1].text)
    assert.equal("alice", ask(connection, alice))
    assert.equal("done", me:result("tools/call", { name = "revoke" }).content[1].text)
    wait.for_fact("401", 20, function() return ask(connection, bob) == 401 end)
    assert.equal(401, ask(connection, bob))
    assert.equal("alice", ask(connection, alice))
  end)

  it("is refused where its scopes are a JSON object", function()
    local g <close> = start { ["auth/main.lua"] = jwt }
    local connection <close> = client.connect(g)
    local object = { ["orders:read"] = true }
    assert.equal("alice", ask(connection, bearer(key:token { scope = "a b" })))
    assert.equal("alice", ask(connection, bearer(key:token { scope = { "a", "b" } })))
    assert.equal(401, ask(connection, bearer(key:token { scope = object })))
    assert.equal(401, ask(connection, bearer(key:token { scope = require "cjson".null, scp = object })))
    for _, value in ipairs { true, 7 } do assert.equal(401, ask(connection, bearer(key:token { scope = value }))) end
  end)
end)
