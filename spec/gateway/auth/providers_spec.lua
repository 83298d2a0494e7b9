-- The scripts of docs/how-to/identity-providers.md, each with the metadata, keys and tokens of its provider's form: the
-- origin of the provider alone is replaced by that of a server of the spec.
local cjson = require "cjson"
local credentials = require "spec.helpers.credentials"
local gateway = require "spec.helpers.gateway"
local page = require "spec.helpers.page"
local stub = require "spec.helpers.stub"
local tokens = require "spec.helpers.tokens"

local who = "return tool { 'Who.', function(_, call) return call.principal.id .. ' may ' .. table.concat(call.principal.scopes, ' ') end }"
local app <const> = "11111111-2222-3333-4444-555555555555"

-- path: of the issuer. claims: of a token that is accepted, as says; others: changes that make it one that is refused.
local providers <const> = {
  entra = { origin = "https://login.microsoftonline.com", path = "/99999999-8888-7777-6666-555555555555/v2.0",
    claims = { aud = app, oid = "4b1d", tid = "9999", scp = "notes.read", roles = { "Notes.All" }, ver = "2.0", azp = "a client", scope = cjson.null },
    says = ("4b1d may api://%s/Notes.All api://%s/notes.read"):format(app, app), others = { { aud = "another" } } },
  keycloak = { origin = "https://id.example.com", path = "/realms/tools",
    claims = { aud = { "account", "https://mcp.example.com/mcp" }, sub = "f7c2", scope = "openid notes:read", azp = "a client",
      realm_access = { roles = { "user" } }, typ = "Bearer" },
    says = "f7c2 may notes:read openid", others = { { aud = "account" } } },
  auth0 = { origin = "https://example.eu.auth0.com", path = "/",
    claims = { aud = { "https://mcp.example.com/mcp", "https://example.eu.auth0.com/userinfo" }, sub = "auth0|5f7c", scope = "notes:read",
      azp = "a client", permissions = { "notes:write" } },
    says = "auth0|5f7c may notes:read", others = { { aud = "https://example.eu.auth0.com/userinfo" } } },
  okta = { origin = "https://example.okta.com", path = "/oauth2/default",
    claims = { aud = "api://default", sub = "ann@example.com", scp = { "openid", "notes.read" }, cid = "a client", uid = "00u1", scope = cjson.null },
    says = "ann@example.com may notes.read openid", others = { { aud = "https://example.okta.com" }, { exp = 1 } } },
}

local function script_of(name)
  for _, block in ipairs(page.blocks "docs/how-to/identity-providers.md") do
    if block.text:find("-- scripts/auth/" .. name .. ".lua", 1, true) == 1 then return block.text end
  end
  error("no script for " .. name)
end

local function start(text, server)
  return gateway.start { scripts = { ["tools/who.lua"] = who, ["auth/main.lua"] = text }, workers = 1,
    config = { public_url = "https://mcp.example.com",
      scripts = { grants = { ["auth/main.lua"] = { net = { server.at }, store = { "google:*" } } } } } }
end

local function answer(g, token)
  local text, status = credentials.ask(g:client("2026-07-28", { token = token }))
  return text or status
end

describe("the page about identity providers", function()
  for name, of in pairs(providers) do
    it("has a script that accepts a token for the gateway of " .. name .. ", and none for another", function()
      local key = tokens.issuer("RS256", "k1")
      local issuer
      local server <close> = stub.start(function(request, reply)
        if request.path == of.path:gsub("/$", "") .. "/.well-known/openid-configuration" then
          return reply:json { issuer = issuer, jwks_uri = issuer:gsub("/$", "") .. "/keys" }
        elseif request.path == of.path:gsub("/$", "") .. "/keys" then
          return reply:send(200, {}, tokens.jwks(key))
        end
        reply:send(404)
      end)
      issuer = server.url .. of.path
      local text, count = script_of(name):gsub((of.origin .. of.path):gsub("%W", "%%%0"), (issuer:gsub("%%", "%%%%")))
      assert.equal(1, count)
      local g <close> = start(text, server)
      of.claims.iss = issuer
      assert.equal(of.says, answer(g, key:token(of.claims, { typ = "JWT" })))
      for _, more in ipairs(of.others) do
        assert.equal(401, answer(g, key:token(tokens.merge(tokens.merge({}, of.claims), more), { typ = "JWT" })))
      end
    end)
  end

  it("has a script that asks Google about a token, once, and accepts no token for another application", function()
    local facts <const> = {
      good = { aud = "1234567890-abc.apps.googleusercontent.com", sub = "1097", email = "ann@example.com", email_verified = "true",
        exp = tostring(os.time() + 3000) },
      other = { aud = "another", sub = "1097", email = "ann@example.com", email_verified = "true", exp = tostring(os.time() + 3000) },
    }
    local asked = 0
    local server <close> = stub.start(function(request, reply)
      asked = asked + 1
      local known = facts[request.target:match "^/tokeninfo%?access_token=(.*)$"]
      if known then return reply:json(known) end
      reply:send(400, {}, "{}")
    end)
    local g <close> = start(script_of "google":gsub("https://oauth2.googleapis.com", server.url), server)
    assert.equal("ann@example.com may email openid", answer(g, "good"))
    assert.equal("ann@example.com may email openid", answer(g, "good"))
    assert.equal(1, asked)
    assert.equal(401, answer(g, "other"))
    assert.equal(401, answer(g, "unknown"))
  end)
end)
