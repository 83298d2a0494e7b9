-- What each provider does otherwise than OpenID Connect says, by a stub that does it.
local cjson = require "cjson"
local provider = require "spec.helpers.provider"
local signing_in = require "spec.helpers.signing_in"

-- Whether `name` may sign in at the provider with these keys: her id, or the page at which it ends.
local function sign_in(idp, keys, name)
  local g <close> = idp:gateway(keys, nil, { workers = 1 })
  local client = signing_in.register(g)
  local code, page = idp:code(g, client, name)
  if not code then return nil, page, g:log() end
  return (signing_in.who(g, signing_in.redeem(g, client, code):json().access_token):match "^%S+"), page, g:log()
end

local TENANT <const>, OTHER <const> = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"

local function entra(more)
  local idp = provider.start { name = "entra", path = "/" .. TENANT .. "/v2.0" }
  idp.people.ann = { sub = "pairwise", oid = "oid-of-ann", tid = TENANT, email = "ann@example.com", email_verified = true }
  for key, value in pairs(more or {}) do idp.people.ann[key] = value end
  return idp
end

describe("entra", function()
  it("has people by tenant and object, whatever sub says, and asks for no userinfo", function()
    local idp <close> = entra()
    assert.equal("entra:" .. TENANT .. ":oid-of-ann", (sign_in(idp, { allow = { users = { "oid-of-ann" } } })))
    assert.equal(0, idp:count "/userinfo")
    assert.is_nil(idp.asked.resource)
    assert.is_nil(idp.asked.prompt)
  end)

  it("counts addresses only with xms_edov, and takes roles", function()
    local idp <close> = entra { roles = { "Notes.Read" } }
    assert.is_nil((sign_in(idp, { allow = { emails = { "*@example.com" } } })))
    idp.people.ann.xms_edov = "1"
    assert.is_nil((sign_in(idp, { allow = { emails = { "*@example.com" } } })))
    idp.people.ann.xms_edov = true
    assert.truthy((sign_in(idp, { allow = { emails = { "*@example.com" } } })))
    assert.truthy((sign_in(idp, { allow = { roles = { "Notes.Read" } } })))
    assert.is_nil((sign_in(idp, { allow = { groups = { "Notes.Read" } } })))
  end)

  it("says so where a person has too many groups, and fetches nothing from the claim", function()
    local idp <close> = entra { _claim_names = { groups = "src1" } }
    idp.people.ann._claim_sources = { src1 = { endpoint = idp.url .. "/groups" } }
    local g <close> = idp:gateway({ allow = { groups = { "g" } } }, { log = { audit = "audit.jsonl" } })
    assert.is_nil((idp:code(g, (signing_in.register(g)))))
    require("spec.helpers.wait").for_fact("the reason in the audit", 5, function()
      return g:file "audit.jsonl":find("Entra leaves the groups out", 1, true)
    end)
    assert.equal(0, idp:count "/groups")
  end)

  it("with an issuer for several tenants takes the issuer of the person's, if it is one of those allowed", function()
    local idp <close> = provider.start { name = "entra", path = "/common/v2.0" }
    idp.people.ann = { sub = "s", oid = "o", tid = TENANT }
    idp.metadata = function(m) m.issuer = idp.url .. "/{tenantid}/v2.0" end
    idp.id_token = function(claims) claims.iss = idp.url .. "/" .. claims.tid .. "/v2.0" end
    local keys = { allow = { tenants = { TENANT } } }
    assert.equal("entra:" .. TENANT .. ":o", (sign_in(idp, keys)))
    idp.people.ann.tid = OTHER
    assert.is_nil((sign_in(idp, keys)))
    idp.people.ann.tid = TENANT
    idp.id_token = function(claims) claims.iss = idp.url .. "/" .. OTHER .. "/v2.0" end
    assert.is_nil((sign_in(idp, keys)))
    idp.people.ann.tid = nil
    assert.is_nil((sign_in(idp, keys)))
  end)

  it("with an issuer for several tenants lets nobody in without sign_in.allow.tenants, however the issuer is written", function()
    local idp <close> = provider.start { name = "entra", path = "/common/v2.0" }
    idp.metadata = function(m) m.issuer = idp.url .. "/{tenantid}/v2.0" end
    for _, keys in ipairs { { issuer = idp.issuer .. "/" }, { allow = { roles = { "Notes.Read" } } } } do
      local g <close> = idp:gateway(keys, nil, { workers = 1 })
      local ann = signing_in.browser(g)
      assert.equal(503, ann:allow(ann:begin((signing_in.register(g)))).status)
      assert.matches("sign_in.allow.tenants has to say of which", g:wait_log("sign-in not possible").text, 1, true)
    end
  end)
end)

describe("google", function()
  it("has addresses of a domain only with its hd, and is asked for consent where it gave no refresh token", function()
    local idp <close> = provider.start { name = "google", is_without_refresh = true }
    local keys = { allow = { emails = { "*@example.com" } } }
    local g <close> = idp:gateway(keys)
    local client = signing_in.register(g)
    local ann = signing_in.browser(g)
    local away = ann:allow(ann:begin(client)).headers.location
    assert.equal(403, ann:send("GET", idp:visit(away, "ann")).status)
    idp.people.ann.hd = "other.example"
    assert.equal(403, ann:send("GET", idp:visit(ann:allow(ann:begin(client)).headers.location, "ann")).status)
    idp.people.ann.hd = "example.com"
    away = ann:allow(ann:begin(client)).headers.location
    local again = ann:send("GET", idp:visit(away, "ann"))
    assert.same({ "offline", nil }, { idp.asked.access_type, idp.asked.prompt })
    assert.equal(303, again.status)
    idp.is_without_refresh = nil
    local back = ann:send("GET", idp:visit(again.headers.location, "ann"))
    assert.same({ "offline", "consent" }, { idp.asked.access_type, idp.asked.prompt })
    assert.equal(200, signing_in.redeem(g, client, signing_in.returned(back).code).status)
    idp.is_without_refresh = true          -- one is kept now
    assert.truthy((idp:code(g, client)))
  end)
end)

-- -- GitHub ----------------------------------------------------------------------------------------------------------------

local function github(more)
  local idp
  local function api(answer)
    return function(self, request, reply)
      local name = self:caller(request, reply)
      if not name then return end
      local value, status = answer(self, name)
      if status then return reply:send(status, { ["content-type"] = "application/json" }, "{}") end
      reply:json(value)
    end
  end
  idp = provider.start { name = "github", is_plain = true, is_without_refresh = true, authorize_path = "/login/oauth/authorize",
    names_itself = true, answers_as = "/login/oauth",
    token_path = "/login/oauth/access_token", error_status = 200, bad_grant = "bad_verification_code",
    users = { ann = { id = 4711, login = "ann-x", name = "Ann" } },
    orgs = {}, emails = { ann = {} }, routes = {
      ["/api/v3/user"] = api(function(self, name) return self.users[name] end),
      ["/api/v3/user/emails"] = api(function(self, name) return self.emails[name] end),
      ["/api/v3/user/memberships/orgs/acme"] = api(function(self)
        local state = self.orgs.acme or 404
        return { state = state }, type(state) == "number" and state or nil
      end),
      ["/api/v3/orgs/acme/teams/ops/memberships/ann-x"] = api(function(self) return { state = self.orgs.ops }, not self.orgs.ops and 404 or nil end),
    } }
  for key, value in pairs(more or {}) do idp[key] = value end
  return idp
end

describe("github", function()
  it("has people by their number, and errors in an answer with status 200", function()
    local idp <close> = github()
    local keys = { allow = { users = { "4711" } } }
    assert.equal("github:4711", (sign_in(idp, keys)))
    assert.equal("read:user user:email", idp.asked.scope)
    assert.equal(provider.SECRET, idp.forms[1].client_secret)
    assert.is_nil(idp.asked.nonce)
    assert.is_nil((sign_in(idp, { allow = { users = { "ann-x" } } })))
    idp.refuse = { 200, { ["content-type"] = "application/json" }, '{"error":"incorrect_client_credentials","error_description":"x"}' }
    local _, page, log = sign_in(idp, keys)
    assert.equal(503, page.status)
    assert.truthy(log:find("the provider answers incorrect_client_credentials", 1, true), log)
  end)

  it("names itself in its answers otherwise than in its people, and nothing else is taken", function()
    local idp <close> = github()
    local g <close> = idp:gateway({ allow = { users = { "4711" } } }, nil, { workers = 1 })
    local client = signing_in.register(g)
    assert.truthy((idp:code(g, client)))
    local ann = signing_in.browser(g)
    local path = idp:visit(ann:allow(ann:begin(client)).headers.location, "ann", { iss = idp.issuer .. "/login" })
    assert.equal(403, ann:send("GET", path).status)
    assert.equal(1, idp:count "/login/oauth/access_token")
  end)

  it("has the primary verified address", function()
    local idp <close> = github()
    local keys = { allow = { emails = { "*@example.com" } } }
    for _, case in ipairs { { { email = "ann@example.com", primary = true, verified = true }, true },
      { { email = "ann@example.com", primary = true, verified = false }, false },
      { { email = "ann@example.com", primary = false, verified = true }, false } } do
      idp.emails.ann = { case[1] }
      assert.equal(case[2], sign_in(idp, keys) ~= nil)
    end
  end)

  it("has active members of an organization or a team, and says when it cannot find out", function()
    local idp <close> = github()
    local org, team = { allow = { groups = { "acme" } } }, { allow = { groups = { "acme/ops" } } }
    assert.is_nil((sign_in(idp, org)))
    idp.orgs = { acme = "pending", ops = "active" }
    assert.is_nil((sign_in(idp, org)))
    assert.equal("read:user user:email read:org", idp.asked.scope)
    assert.truthy((sign_in(idp, team)))
    idp.orgs.acme = "active"
    assert.truthy((sign_in(idp, org)))
    idp.orgs.acme = 403
    local _, page = sign_in(idp, org)
    assert.equal(503, page.status)
  end)

  it("is asked again with the access token, which does not end", function()
    local idp <close> = github()
    idp.answer = function(answer) answer.expires_in = nil end
    local g <close> = idp:gateway({ allow = { users = { "4711" } } }, nil, { constants = { sign_in_fresh_ms = 0 } })
    local client = signing_in.register(g)
    local tokens = idp:tokens(g, client)
    tokens = signing_in.refresh(g, client, tokens.refresh_token):json()
    assert.equal("github:4711 notes:read notes:write", (signing_in.who(g, tokens.access_token)))
    assert.equal(2, idp:count "/api/v3/user")
    idp.disabled.ann = true
    assert.equal("invalid_grant", signing_in.refresh(g, client, tokens.refresh_token):json().error)
    assert.equal(401, (signing_in.who(g, tokens.access_token)))
  end)
end)

-- -- others ----------------------------------------------------------------------------------------------------------------

describe("another provider", function()
  it("okta: is asked for groups where they count", function()
    local idp <close> = provider.start { name = "okta", path = "/oauth2/default" }
    idp.people.ann.groups = { "Ops" }
    assert.equal("okta:1001", (sign_in(idp, { allow = { groups = { "Ops" } } })))
    assert.equal("openid email profile groups offline_access", idp.asked.scope)
  end)

  it("auth0: has a slash at the end of its issuer, and the check of one byte says which", function()
    local idp <close> = provider.start { name = "auth0", path = "/" }
    idp.people.ann.sub = "auth0|1001"
    assert.equal("auth0:auth0|1001", (sign_in(idp)))
    local g <close> = idp:gateway { issuer = idp.url }
    local ann = signing_in.browser(g)
    assert.equal(503, ann:allow(ann:begin((signing_in.register(g)))).status)
    local log = g:wait_log("sign-in not possible").text
    assert.truthy(log:find(idp.url .. "/", 1, true) and log:find("byte for byte", 1, true), log)
  end)

  it("keycloak: has roles of the realm, and refresh tokens whose end is 0", function()
    local idp <close> = provider.start { name = "keycloak", path = "/realms/main" }
    idp.people.ann.realm_access = { roles = { "ops" } }
    idp.answer = function(answer) answer.refresh_expires_in = 0 end
    assert.equal("keycloak:1001", (sign_in(idp, { allow = { roles = { "ops" } } })))
    assert.is_nil((sign_in(idp, { allow = { roles = { "dev" } } })))
  end)

  it("cognito: has the word true for a verified address, groups of its own name, and metadata without PKCE", function()
    local idp <close> = provider.start { name = "cognito", path = "/eu-central-1_x" }
    idp.people.ann.email_verified, idp.people.ann["cognito:groups"] = "true", { "ops" }
    assert.truthy((sign_in(idp, { allow = { emails = { "*@example.com" } } })))
    assert.truthy((sign_in(idp, { allow = { groups = { "ops" } } })))
    idp.people.ann.email_verified = "TRUE"
    assert.is_nil((sign_in(idp, { allow = { emails = { "*@example.com" } } })))
  end)

  it("gitlab: has groups by their whole paths", function()
    local idp <close> = provider.start { name = "gitlab", more = { ann = { groups_direct = { "acme/ops" } } } }
    assert.truthy((sign_in(idp, { allow = { groups = { "acme/ops" } } })))
    assert.is_nil((sign_in(idp, { allow = { groups = { "ops" } } })))
  end)

  it("authentik: has an issuer with a path and a slash at its end", function()
    local idp <close> = provider.start { name = "authentik", path = "/application/o/moonpool/" }
    assert.equal("authentik:1001", (sign_in(idp)))
  end)

  it("oauth2: has its endpoints in the configuration, and people by id", function()
    local idp <close> = provider.start { name = "oauth2", is_plain = true }
    idp.userinfo = function() return { id = 7, email = "ann@example.com", email_verified = true } end
    local urls = { authorize = idp.url .. "/authorize", token = idp.url .. "/token", user = idp.url .. "/userinfo" }
    assert.equal("oauth2:7", (sign_in(idp, { issuer = false, urls = urls, ask = { "read" } })))
    assert.equal("read", idp.asked.scope)
    assert.is_nil((sign_in(idp, { issuer = false, urls = urls, allow = { users = { "8" } } })))
    idp.userinfo = function() return { name = cjson.null } end
    assert.is_nil((sign_in(idp, { issuer = false, urls = urls })))
    idp.routes["/userinfo"] = function(_, _, reply) reply:send(403, { ["content-type"] = "application/json" }, '{"id":"forbidden"}') end
    local id, page = sign_in(idp, { issuer = false, urls = urls })          -- an error is not a person
    assert.same({ nil, 503 }, { id, page.status })
  end)
end)
