-- People who sign in at a provider of OpenID Connect: the way there and back, what its answers must be, and what ends a
-- sign-in.
local cjson = require "cjson"
local provider = require "spec.helpers.provider"
local signing_in = require "spec.helpers.signing_in"
local tokens = require "spec.helpers.tokens"
local wait = require "spec.helpers.wait"

local function has(text, part) assert.truthy(text:find(part, 1, true), part .. " is not in: " .. text) end

-- The page at which a sign-in of `name` ends.
local function page_of(idp, g, name)
  local code, page = idp:code(g, (signing_in.register(g)), name)
  assert.is_nil(code)
  return page
end

describe("a sign-in at a provider", function()
  it("goes by consent, provider and callback to a call in the person's name", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway()
    local client = signing_in.register(g)
    local ann = signing_in.browser(g)
    local consent = ann:begin(client, { scope = "notes:read other" })
    assert.equal(0, #idp.server.requests)
    local away = ann:allow(consent)
    assert.equal(303, away.status)
    local back = ann:send("GET", idp:visit(away.headers.location, "ann"))
    assert.equal("openid email profile offline_access", idp.asked.scope)
    assert.equal(303, back.status)
    local returned = signing_in.returned(back)
    assert.same({ "s t&ate", signing_in.url }, { returned.state, returned.iss })
    local answer = signing_in.redeem(g, client, returned.code):json()
    assert.equal("notes:read", answer.scope)
    assert.equal("oidc:1001 notes:read", (signing_in.who(g, answer.access_token)))
    assert.equal(403, ann:allow(consent).status)          -- the form was used
    assert.has_nothing_left(g)
  end)

  it("is bound to the browser, and its answer counts once", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway()
    local client = signing_in.register(g)
    local ann, eve = signing_in.browser(g), signing_in.browser(g)
    local path = idp:visit(ann:allow(ann:begin(client)).headers.location, "ann")
    eve:begin(client)
    assert.equal(403, eve:send("GET", path).status)
    assert.equal(403, signing_in.browser(g):send("GET", path).status)
    assert.equal(403, ann:send("GET", "/oauth/callback?code=x&state=unknown").status)
    assert.equal(405, ann:send("HEAD", path).status)
    assert.equal(0, idp:count "/token")
    assert.equal(303, ann:send("GET", path).status)
    assert.equal(403, ann:send("GET", path).status)
    assert.equal(1, idp:count "/token")
  end)

  it("has two flows of one browser, each with its client", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway()
    local ann = signing_in.browser(g)
    local one, two = signing_in.register(g), signing_in.register(g, { client_name = "Two" })
    local first = idp:visit(ann:allow(ann:begin(one)).headers.location, "ann")
    local second = idp:visit(ann:allow(ann:begin(two)).headers.location, "ann")
    local code_two, code_one = signing_in.returned(ann:send("GET", second)).code, signing_in.returned(ann:send("GET", first)).code
    assert.equal(200, signing_in.redeem(g, two, code_two).status)
    assert.equal(200, signing_in.redeem(g, one, code_one).status)
  end)

  it("takes no answer that is not one, or of another issuer", function()
    local idp <close> = provider.start { names_itself = true }
    local g <close> = idp:gateway()
    local client = signing_in.register(g)
    local ann = signing_in.browser(g)
    local function try(more)
      local path = idp:visit(ann:allow(ann:begin(client)).headers.location, "ann", more)
      return ann:send("GET", path)
    end
    assert.equal(403, try({ iss = "https://evil.example" }).status)
    assert.equal(403, try({ iss = false }).status)
    assert.equal(403, try({ iss = "https://evil.example", code = false, error = "access_denied" }).status)
    assert.equal(400, try({ error = "access_denied" }).status)
    assert.equal(400, try({ code = false }).status)
    assert.equal(400, try({ code = ("x"):rep(5000) }).status)
    local path = idp:visit(ann:allow(ann:begin(client)).headers.location, "ann")
    assert.equal(400, ann:send("GET", path .. "&state=x").status)
    assert.equal(0, idp:count "/token")
    assert.equal(303, try().status)
  end)

  it("that cannot go to the provider stores nothing", function()
    local idp <close> = provider.start { metadata = function(m) m.jwks_uri = nil end }
    local g <close> = idp:gateway(nil, nil, { workers = 1 })
    local client, ann = signing_in.register(g), signing_in.browser(g)
    local function entries() return g:status().gauges.store_entries end
    local before = entries()
    for _ = 1, 40 do assert.equal(503, ann:allow(ann:begin(client)).status) end
    assert.is_true(entries() < before + 20, "entries: " .. before .. ", then " .. entries())
  end)

  it("of one person has a rate, so that the endings of hers leave room for others", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway(nil, nil, { workers = 2 })
    local client, count, page = signing_in.register(g), 0, nil
    for _ = 1, 67 do
      local code, answer = idp:code(g, client)
      count, page = count + (code and 1 or 0), not code and answer or page
    end
    assert.is_true(count == 64 or count == 65, count .. " sign-ins")        -- another one after a minute
    assert.equal(503, page.status)
    has(page.body, "very often")
    assert.is_string((idp:code(g, client, "bob")))
  end)

  it("that the provider refuses ends at the client, without the provider's words", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway()
    local client = signing_in.register(g)
    for code, said in pairs { access_denied = "access_denied", server_error = "server_error", ["<b>"] = "server_error" } do
      local ann = signing_in.browser(g)
      local page = ann:send("GET", idp:visit(ann:allow(ann:begin(client)).headers.location, "ann",
        { code = false, error = code, error_description = "hunter2" }))
      assert.equal(303, page.status)
      local back = signing_in.returned(page)
      assert.same({ said, "s t&ate", signing_in.url, "the identity provider refused" }, { back.error, back.state, back.iss, back.error_description })
    end
  end)
end)

describe("an ID token", function()
  local future = os.time() + 600

  -- What is changed, in each case, in a token that is otherwise true; and what the audit says.
  local wrong = {
    { { nonce = "other" }, "another nonce" }, { { nonce = false }, "another nonce" }, { { aud = "other" }, "another audience" },
    { { aud = { provider.CLIENT, "other" } }, "another client" }, { { azp = "other" }, "another client" },
    { { iss = "https://evil.example" }, "another issuer" }, { { exp = os.time() - 100 }, "has expired" },
    { { iat = future }, "issued in the future" }, { { exp = false }, "has no 'exp'" }, { { iat = false }, "has no 'iat'" }, { { sub = false }, "has no 'sub'" },
    { { sub = ("x"):rep(300) }, "names no subject" }, { { at_hash = "AAAAAAAAAAAAAAAAAAAAAA" }, "another access token" },
  }

  it("that is not true lets nobody in", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway(nil, { log = { audit = "audit.jsonl" } })
    local function refuses(change, why)
      idp.id_token = change
      local before = #g:file "audit.jsonl"
      assert.equal(403, page_of(idp, g).status, why)
      wait.for_fact("a line of the audit: " .. why, 5, function() return g:file "audit.jsonl":find(why, before + 1, true) end)
    end
    for _, case in ipairs(wrong) do
      refuses(function(claims)
        for key, value in pairs(case[1]) do claims[key] = value or nil end
      end, case[2])
    end
    refuses(function(claims) claims.iss = claims.iss .. "/" end, "another issuer")
    for _, case in ipairs { { { alg = "none" }, "algorithm is not accepted" }, { { alg = "HS256", kid = "k1" }, "algorithm is not accepted" },
      { { alg = "ES256", kid = "k1", crit = { "x" } }, "critical header" }, { { alg = "ES256", kid = "../k" }, "key that the issuer does not have" } } do
      refuses(function(claims) return idp.keys[1]:sign(cjson.encode(case[1]), cjson.encode(claims)) end, case[2])
    end
    refuses(function(claims) return tokens.issuer("ES256", "k1"):sign('{"alg":"ES256","kid":"k1"}', cjson.encode(claims)) end, "signature is not the issuer's")
    refuses(function() return "x.y.z" end, "the ID token:")
    idp.id_token = function(claims) claims.aud, claims.azp = { provider.CLIENT, "other" }, provider.CLIENT end
    assert.truthy((idp:code(g, (signing_in.register(g)))))
    assert.has_nothing_left(g)
  end)

  it("is verified by a key that the provider has since just now", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway()
    assert.truthy((idp:code(g, (signing_in.register(g)))))
    local fetches = idp:count "/keys"
    idp.keys = { tokens.issuer("ES256", "k2") }
    assert.truthy((idp:code(g, (signing_in.register(g)))))
    assert.equal(fetches + 1, idp:count "/keys")
    idp.keys = { tokens.issuer("ES256", "k3") }           -- a second new key within the pause
    assert.equal(403, page_of(idp, g).status)
    assert.equal(fetches + 1, idp:count "/keys")
  end)
end)

describe("the provider's metadata", function()
  local cases = {
    ["another issuer"] = function(m) m.issuer = "https://evil.example" end,
    ["a slash more"] = function(m) m.issuer = m.issuer .. "/" end,
    ["a token endpoint at another address of this machine"] = function(m) m.token_endpoint = "http://127.0.0.2:1/token" end,
    ["keys at another port"] = function(m) m.jwks_uri = "http://127.0.0.1:1/keys" end,
    ["keys at an address"] = function(m) m.jwks_uri = m.jwks_uri:gsub("^http:", "https:") end,
    ["keys at a private address"] = function(m) m.jwks_uri = "https://10.0.0.5:8443/keys" end,
    ["keys at this machine"] = function(m) m.jwks_uri = "https://localhost:1/keys" end,
    ["keys at a name below localhost"] = function(m) m.jwks_uri = "https://a.localhost:1/keys" end,
    ["an authorization endpoint without https"] = function(m) m.authorization_endpoint = "http://login.example/authorize" end,
    ["no keys"] = function(m) m.jwks_uri = nil end,
  }
  for name, change in pairs(cases) do
    it("with " .. name .. " give a page, and no request elsewhere", function()
      local idp <close> = provider.start { metadata = change }
      local g <close> = idp:gateway()
      local ann = signing_in.browser(g)
      local page = ann:allow(ann:begin((signing_in.register(g))))
      assert.equal(503, page.status)
      has(page.body, "cannot be asked at the moment")
      g:wait_log "sign-in not possible"
      assert.equal(#idp.server.requests, idp:count "/.well-known/openid-configuration")
    end)
  end

  it("are asked for once, and a redirect is not followed", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway(nil, nil, { workers = 1 })
    for _ = 1, 3 do assert.truthy((idp:code(g, (signing_in.register(g))))) end
    assert.equal(1, idp:count "/.well-known/openid-configuration")
    local other <close> = provider.start { routes = { ["/.well-known/openid-configuration"] = function(_, _, reply)
      reply:send(302, { location = idp.url .. "/.well-known/openid-configuration" })
    end } }
    local count = #idp.server.requests
    local h <close> = other:gateway()
    local ann = signing_in.browser(h)
    assert.equal(503, ann:allow(ann:begin((signing_in.register(h)))).status)
    assert.equal(count, #idp.server.requests)
  end)
end)

describe("a token endpoint of the provider", function()
  it("that fails gives a page and a line of the log, and its words are nowhere", function()
    local idp <close> = provider.start()
    local g <close> = idp:gateway()
    for _, case in ipairs { { 500, nil, "hunter2" }, { 403, nil, "<html>hunter2" }, { 200, nil, "hunter2" }, { 302, { location = "/x" }, "" },
      { 400, nil, '{"error":"invalid_client"}' }, { 400, nil, '{"error":"invalid_grant"}' }, { 200, nil, '{"error":"invalid_grant"}' },
      { 200, nil, '{"access_token":"x","token_type":"mac"}' } } do
      idp.refuse = case
      local page = page_of(idp, g)
      assert.truthy(page.status == 503 or page.status == 403, tostring(page.status))
      assert.is_nil(page.body:find("hunter2", 1, true))
    end
    wait.for_fact("the provider's word in the log", 10, function() return g:log():find("the provider answers invalid_client", 1, true) end)
    assert.is_nil(g:log():find("hunter2", 1, true))
  end)

  it("gets the secret in the way that its metadata name", function()
    for _, method in ipairs { "client_secret_basic", "client_secret_post" } do
      local idp <close> = provider.start { metadata = function(m) m.token_endpoint_auth_methods_supported = { method } end }
      local g <close> = idp:gateway()
      assert.truthy((idp:code(g, (signing_in.register(g)))))
      assert.equal(method == "client_secret_post" and provider.SECRET or nil, idp.forms[1].client_secret)
    end
  end)
end)

describe("sign_in.allow", function()
  -- Who gets in: { keys of allow, claims of the person, whether she may }
  local cases = {
    { { users = { "1001" } }, {}, true }, { { users = { "1002" } }, {}, false }, { { users = { "ann@example.com" } }, {}, false },
    { { emails = { "*@example.com" } }, {}, true }, { { emails = { "ann@example.com" } }, {}, true }, { { emails = { "bob@example.com" } }, {}, false },
    { { emails = { "*@example.com" } }, { email = "ann@EXAMPLE.com" }, true }, { { emails = { "*@Example.com" } }, {}, true },
    { { emails = { "*@example.com" } }, { email_verified = false }, false }, { { emails = { "*@example.com" } }, { email_verified = "true" }, false },
    { { emails = { "*@example.com" } }, { email_verified = 1 }, false },
    { { emails = { "*@example.com" } }, { email = "ann@example.com.evil.example" }, false },
    { { emails = { "*@example.com" } }, { email = '"ann@example.com"@evil.example' }, false },
    { { emails = { "*@example.com" } }, { email = "ann@ex\u{e4}mple.com" }, false },
    { { emails = { "*@example.com" } }, { email = "ann@sub.example.com" }, false },
    { { groups = { "ops" } }, { groups = { "dev", "ops" } }, true }, { { groups = { "ops" } }, { groups = { "dev" } }, false },
    { { groups = { "ops" } }, {}, false }, { { groups = { "ops" }, users = { "1001" } }, {}, true },
  }

  it("lets in whom one of its lists names, by what the provider has verified", function()
    local idp <close> = provider.start()
    for i, case in ipairs(cases) do
      idp.people.ann = { sub = "1001", email = "ann@example.com", email_verified = true }
      for key, value in pairs(case[2]) do idp.people.ann[key] = value end
      local g <close> = idp:gateway({ allow = case[1] }, nil, { workers = 1 })
      local code, page = idp:code(g, (signing_in.register(g)))
      assert.equal(case[3], code ~= nil, "case " .. i)
      if not case[3] then
        assert.equal(403, page.status)
        has(page.body, "error=access_denied")
      end
    end
  end)

  it("asks userinfo for what the ID token lacks, and takes no other person's", function()
    local idp <close> = provider.start { more = { ann = { groups = { "ops" } } } }
    local g <close> = idp:gateway { allow = { groups = { "ops" } } }
    assert.truthy((idp:code(g, (signing_in.register(g)))))
    idp.userinfo = function(claims) claims.sub = "1002" end
    assert.equal(403, page_of(idp, g).status)
  end)

  it("does not take userinfo's word for an address that is another one", function()
    local idp <close> = provider.start { more = { ann = { email = "eve@evil.example", email_verified = true } } }
    idp.people.ann.email_verified = nil
    local g <close> = idp:gateway { allow = { emails = { "*@example.com" } } }
    assert.equal(403, page_of(idp, g).status)
    idp.people.ann.email, idp.people.ann.email_verified = nil, true
    idp.more.ann = { email = "ann@example.com", email_verified = false }
    assert.equal(403, page_of(idp, g).status)
    idp.more.ann.email_verified = true
    assert.truthy((idp:code(g, (signing_in.register(g)))))
  end)
end)
