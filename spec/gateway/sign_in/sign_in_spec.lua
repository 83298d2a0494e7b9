-- A client whose person signs in at the gateway itself: metadata, registration, consent, password, tokens.
local signing_in = require "spec.helpers.signing_in"
local wire = require "spec.helpers.wire"

local url, resource = signing_in.url, signing_in.resource

describe("a gateway with sign_in", function()
  it("is found by its metadata, and by the challenge of a 401", function()
    local g <close> = signing_in.start()
    local status, response = signing_in.who(g)
    assert.equal(401, status)
    assert.equal(('Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"'):format(url), response.headers["www-authenticate"])
    local prm = wire.request(g, "GET", "/.well-known/oauth-protected-resource/mcp"):json()
    assert.same({ resource, { url } }, { prm.resource, prm.authorization_servers })
    for _, name in ipairs { "oauth-authorization-server", "openid-configuration" } do
      local answer = signing_in.send(g, "GET", "/.well-known/" .. name)
      assert.equal("*", answer.headers["access-control-allow-origin"])
      local metadata = answer:json()
      assert.equal(url, metadata.issuer)
      assert.equal(url .. "/oauth/authorize", metadata.authorization_endpoint)
      assert.same({ "S256" }, metadata.code_challenge_methods_supported)
    end
    assert.equal(404, signing_in.send(g, "GET", "/.well-known/oauth-authorization-server/other").status)
    assert.equal(404, signing_in.send(g, "GET", "/oauth/other").status)
    assert.equal(405, signing_in.send(g, "GET", "/oauth/token").status)
    assert.equal(403, signing_in.send(g, "GET", "/oauth/authorize", nil, { Host = "evil.example" }).status)
    assert.has_nothing_left(g)
  end)

  it("signs a person in, from the consent page to a call in her name", function()
    local g <close> = signing_in.start()
    local client = signing_in.register(g)
    local ann = signing_in.browser(g)
    local consent = ann:begin(client, { scope = "notes:read other" })
    assert.equal(200, consent.status)
    assert.truthy(consent.body:find("a program on this computer (127.0.0.1:4711)", 1, true))
    assert.truthy(consent.body:find("calls itself <b>Spec</b> (unverified)", 1, true))
    assert.truthy(consent.headers["content-security-policy"]:find("default-src 'none'", 1, true))
    assert.same({ "DENY", "no-store", "same-origin", "nosniff" }, { consent.headers["x-frame-options"], consent.headers["cache-control"],
      consent.headers["referrer-policy"], consent.headers["x-content-type-options"] })
    assert.truthy(consent.headers["set-cookie"]:find("; HttpOnly; SameSite=Lax$"))
    local page = ann:allow(consent)
    assert.equal(200, page.status)
    local done = ann:sign_in(page)
    assert.equal(303, done.status)
    assert.equal(signing_in.redirect, done.headers.location:match "^[^?]+")
    local back = signing_in.returned(done)
    assert.same({ "s t&ate", url }, { back.state, back.iss })
    local answer = signing_in.redeem(g, client, back.code, { resource = resource })
    assert.equal("no-store", answer.headers["cache-control"])
    local tokens = answer:json()
    assert.same({ "Bearer", 3600, "notes:read" }, { tokens.token_type, tokens.expires_in, tokens.scope })
    assert.equal("password:ann notes:read", signing_in.who(g, tokens.access_token))
    assert.truthy(tokens.access_token:find "^mpa_")
    for _, bad in ipairs { tokens.refresh_token, tokens.access_token .. "A", "mpa_", client.client_id } do
      assert.equal(401, (signing_in.who(g, bad)))
    end
    assert.has_nothing_left(g)
  end)

  it("lets a refused person's client know, and stores nothing before the password was right", function()
    local g <close> = signing_in.start()
    local client = signing_in.register(g)
    local ann = signing_in.browser(g)
    local back = signing_in.returned(ann:allow(ann:begin(client), "refuse"))
    assert.same({ "access_denied", "s t&ate", url }, { back.error, back.state, back.iss })
    local page = ann:allow(ann:begin(client))
    local wrong = ann:sign_in(page, "ann", "hello12346")
    local unknown = ann:sign_in(page, "eve", "hello12345")
    assert.same({ 403, 403 }, { wrong.status, unknown.status })
    assert.equal((wrong.body:gsub('value="[^"]+"', "")), (unknown.body:gsub('value="[^"]+"', "")))
    assert.equal(303, ann:sign_in(wrong).status)
    assert.equal(403, ann:sign_in(wrong).status)        -- the form was used
  end)
end)

describe("a form", function()
  it("belongs to its browser, to a page of ours, and to its step", function()
    local g <close> = signing_in.start()
    local client = signing_in.register(g)
    local ann, eve = signing_in.browser(g), signing_in.browser(g)
    local consent = ann:begin(client)
    eve:begin(client)
    assert.equal(403, eve:allow(consent).status)
    for _, headers in ipairs { { Origin = "https://evil.example" }, { Origin = "null" }, { Origin = false }, { Origin = url .. ".evil.example" } } do
      assert.equal(403, ann:post(consent, "/oauth/consent", { answer = "allow" }, headers).status)
    end
    assert.equal(200, ann:post(consent, "/oauth/consent", { answer = "allow" }, { Origin = false, ["Sec-Fetch-Site"] = "same-origin" }).status)
    assert.equal(403, ann:sign_in(consent).status)
    local cookie = ann.cookie
    for _, other in ipairs { cookie .. "x", cookie .. "; " .. cookie, "a=b" } do
      ann.cookie = other
      assert.equal(403, ann:post(consent, "/oauth/consent", { answer = "allow" }).status)
    end
    ann.cookie = "theme=dark; " .. cookie
    assert.equal(200, ann:allow(consent).status)
  end)
end)

describe("a request to authorize", function()
  it("with a fault ends on a page of ours, never in a redirect", function()
    local g <close> = signing_in.start()
    local client = signing_in.register(g)
    local ann = signing_in.browser(g)
    for _, more in ipairs {
      { response_type = "token" }, { response_type = false }, { response_mode = "fragment" }, { code_challenge = false },
      { code_challenge_method = "plain" }, { code_challenge_method = false }, { code_challenge = "short" }, { prompt = "none" },
      { request_uri = "http://169.254.169.254/" }, { request = "e30.e30." }, { resource = "https://other.example/mcp" },
      { redirect_uri = signing_in.redirect .. "/" }, { redirect_uri = "http://127.0.0.1:4711/callback?x" }, { redirect_uri = "https://evil.example/" },
      { redirect_uri = false }, { client_id = "mpd1.AAAA" }, { client_id = false }, { scope = 'a"b' }, { state = ("s"):rep(1025) },
    } do
      local response = ann:begin(client, more)
      assert.same({ 400, nil }, { response.status, response.headers.location }, next(more))
      assert.truthy(response.body:find("cannot go on", 1, true))
    end
    local twice = ann:send("GET", "/oauth/authorize?state=a&state=b&client_id=" .. signing_in.escape(client.client_id))
    assert.equal(400, twice.status)
    assert.equal(200, ann:begin(client, { redirect_uri = "http://127.0.0.1:60000/callback" }).status)     -- another port of this machine
    assert.equal(200, ann:begin(client, { resource = "HTTP://127.0.0.1:7300/mcp/" }).status)
    local other = ann:send("GET", "/oauth/authorize?state=1", nil, { Host = "localhost:7300" })
    assert.same({ 303, url .. "/oauth/authorize?state=1" }, { other.status, other.headers.location })
  end)
end)

describe("a registration", function()
  it("stores nothing: equal metadata give the equal id", function()
    local g <close> = signing_in.start()
    local function entries() return g:status().gauges.store_entries end        -- those of jobs come and go
    local one, before = signing_in.register(g), entries()
    local other = signing_in.register(g)
    assert.equal(one.client_id, other.client_id)
    assert.not_equal(one.client_id, signing_in.register(g, { client_name = "Other" }).client_id)
    assert.is_true(#one.client_id < 512)
    for i = 1, 20 do signing_in.register(g, { client_name = "Other " .. i }) end
    assert.is_true(entries() < before + 10, "entries: " .. before .. ", then " .. entries())
    assert.is_nil(one.client_secret)
    local client = signing_in.register(g, { token_endpoint_auth_method = "client_secret_post" })
    assert.equal(0, client.client_secret_expires_at)
    local code = signing_in.code(g, client)
    assert.equal(401, signing_in.redeem(g, client, code).status)
    assert.equal(401, signing_in.redeem(g, client, code, { client_secret = "wrong" }).status)
    assert.equal(200, signing_in.redeem(g, client, code, { client_secret = client.client_secret }).status)
  end)

  it("is refused with redirects that are no way back to the client", function()
    local g <close> = signing_in.start()
    for _, redirect in ipairs {
      "http://evil.example/cb", "http://127.0.0.1.evil.example/", "http://localhost.evil.example/", "http://127.1/", "http://2130706433/",
      "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/", "http://localhost@evil.example/", "javascript:alert(1)", "data:text/html,x", "ms-msdt:/id",
      "view-source:https://a.example", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "file:///etc/passwd", "https://a.example/cb#x",
      "https://u:p@a.example/", "https://a.example\\@b.example/", "https://a.example/../b", "https://a.example/%2e%2e/b", "https://a.example/a b",
      "https://a.example/\tb", "https://127.0.0.1:7300/cb", "https://127.0.0.1:07300/cb", "https://127.0.0.1.:7300/cb", "ws://a.example", "//a.example", "",
    } do
      local body, response = signing_in.register(g, { redirect_uris = { redirect } })
      assert.same({ 400, "invalid_redirect_uri" }, { response.status, body.error }, redirect)
    end
    for _, redirect in ipairs { "https://claude.ai/api/mcp/auth_callback", "http://localhost:1/cb", "http://[::1]:33418/",
      "cursor://anysphere.cursor-retrieval/oauth/cb" } do
      local _, response = signing_in.register(g, { redirect_uris = { redirect } })
      assert.equal(201, response.status, redirect)
    end
    for _, more in ipairs { { client_name = ("n"):rep(101) }, { client_name = "a\nb" }, { client_name = "a\u{202E}b" }, { redirect_uris = {} },
      { token_endpoint_auth_method = "private_key_jwt" }, { software_statement = "e30.e30." }, { grant_types = { "implicit" } } } do
      local _, response = signing_in.register(g, more)
      assert.equal(400, response.status, next(more))
    end
    local _, response = signing_in.register(g, { x = ("x"):rep(20000) })
    assert.equal(413, response.status)
  end)
end)
