-- The built-in methods of auth: API keys, a bearer secret, a proxy's header, introspection.
local certificates = require "spec.helpers.certificates"
local client = require "spec.helpers.client"
local gateway = require "spec.helpers.gateway"
local stub = require "spec.helpers.stub"
local tokens = require "spec.helpers.tokens"
local wait = require "spec.helpers.wait"

local who = [[return tool { "Who.", function(_, call) return call.principal.id .. " " .. table.concat(call.principal.scopes, "+") end }]]

local META = { ["io.modelcontextprotocol/protocolVersion"] = "2026-07-28", ["io.modelcontextprotocol/clientCapabilities"] = {},
  ["io.modelcontextprotocol/clientInfo"] = { name = "spec", version = "1" } }

local function start(script, options)
  options = options or {}
  options.scripts = { ["auth/main.lua"] = script, ["tools/who.lua"] = who }
  options.workers = options.workers or 1
  return gateway.start(options)
end

local function send(connection, headers)
  local all = { accept = "application/json, text/event-stream", ["mcp-protocol-version"] = "2026-07-28", ["mcp-method"] = "tools/call", ["mcp-name"] = "who" }
  for name, value in pairs(headers) do all[name] = value end
  return connection:send { method = "POST", path = "/mcp", headers = all,
    body = { jsonrpc = "2.0", id = 1, method = "tools/call", params = { name = "who", _meta = META } } }
end

local function told(connection)
  local response = connection:read_response()
  if response.status ~= 200 then return response.status, response end
  return response:json().result.content[1].text, response
end

-- The principal's id that the gateway uses for the request; or the HTTP status.
local function ask(g, headers)
  local connection <close> = client.connect(g)
  return told(send(connection, headers))
end

local function bearer(token) return { Authorization = "Bearer " .. token } end

local function sha256(text) return (tokens.keys.sha256(text):gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local function rejects(script, what, options)
  options = options or {}
  options.scripts = { ["auth/main.lua"] = script }
  local dir = gateway.prepare(options)
  local code, _, err = gateway.exec({ "check" }, { cwd = dir })
  os.execute("rm -r '" .. dir .. "'")
  assert.is_true(code ~= 0, script)
  assert.truthy(err:find(what, 1, true), err)
  assert.truthy(err:find("scripts/auth/main.lua:", 1, true), err)
end

describe("auth.keys", function()
  local key = "mp_" .. ("k"):rep(43)

  it("authenticates keys by their hash, in either header, and refuses every other key", function()
    local g <close> = start(([[return auth.keys { prefix = "robot:", keys = {
      ci = { sha256 = "%s", scopes = { "a", "b" } }, old = { sha256 = "sha256:%s", expires = "2020-01-31" } } }]]):format(sha256(key), sha256 "old"))
    assert.equal("robot:ci a+b", ask(g, { ["x-api-key"] = key }))
    assert.equal("robot:ci a+b", ask(g, bearer(key)))
    for _, headers in ipairs {
      {}, { ["x-api-key"] = "" }, { ["x-api-key"] = key .. "x" }, { ["x-api-key"] = sha256(key) }, { ["x-api-key"] = ("k"):rep(8000) },
      { ["x-api-key"] = "old" }, bearer "x", { Authorization = "Basic " .. key },
    } do
      local status, response = ask(g, headers)
      assert.equal(401, status)
      assert.is_string(response.headers["www-authenticate"])
    end
    assert.is_nil(g:log():find(key, 1, true))
    assert.has_nothing_left(g)
  end)

  it("reads them from a file, and again when that has changed; a broken file changes nothing", function()
    local g <close> = start('return auth.keys { file = "keys" }', {
      files = { keys = "# people\nci sha256:" .. sha256(key) .. " a,b\n" }, config = { scripts = { allow = { read = { "keys" } } } } })
    local function write(text)
      local file <close> = assert(io.open(g.dir .. "/keys", "wb"))
      file:write(text)
    end
    assert.equal("key:ci a+b", ask(g, { ["x-api-key"] = key }))
    write "ci nonsense\n"
    wait.for_fact("the broken file to be seen", 20, function()
      assert.equal("key:ci a+b", ask(g, { ["x-api-key"] = key }))
      return g:log():find("file not accepted", 1, true)
    end)
    assert.is_nil(g:log():find("nonsense", 1, true))
    write("desk sha256:" .. sha256 "other" .. " - 2999-12-31\n")
    wait.for_fact("the new file to be seen", 20, function() return ask(g, { ["x-api-key"] = "other" }) == "key:desk " end)
    assert.equal(401, ask(g, { ["x-api-key"] = key }))
    assert.has_nothing_left(g)
  end)

  it("finds keys in the store", function()
    local g <close> = start([[
      store.set("keys:" .. digest.sha256 "]] .. key .. [[", { name = "ci", scopes = { "a" } })
      return auth.keys { store = "keys:" }]], { config = { scripts = { grants = { ["auth/"] = { store = { "keys:*" } } } } } })
    assert.equal("key:ci a", ask(g, { ["x-api-key"] = key }))
    assert.equal(401, ask(g, { ["x-api-key"] = "x" }))
    assert.has_nothing_left(g)
  end)

  it("says 503 while its file cannot be read", function()
    local g <close> = start('return auth.keys { file = "keys" }', { config = { scripts = { allow = { read = { "keys" } } } } })
    assert.equal(503, ask(g, { ["x-api-key"] = key }))
    local file = assert(io.open(g.dir .. "/keys", "wb"))
    file:write("ci sha256:" .. sha256(key) .. " a,b\n")
    file:close()
    wait.for_fact("the file to be read", 20, function() return ask(g, { ["x-api-key"] = key }) == "key:ci a+b" end)
    assert.has_nothing_left(g)
  end)

  it("is checked while it loads", function()
    rejects('return auth.keys {}', "auth.keys needs exactly one of 'keys', 'file' and 'store'")
    rejects('return auth.keys { keys = { ci = { sha256 = "x" } } }', "64 hexadecimal digits")
    rejects('return auth.keys { file = "keys" }', "no grant allows it")
    rejects('return auth.keys { store = "keys:" }', "the keys 'keys:' of the store are not reserved: any script could write one")
    rejects('return auth.keys { kyes = {} }', "did you mean 'keys'?")
  end)
end)

describe("auth.bearer", function()
  it("accepts one secret, which is in no log", function()
    local g <close> = start('return auth.bearer { secret = secret "API_TOKEN", id = "desk", scopes = { "a" } }', {
      env = { API_TOKEN = "correct horse battery staple" }, config = { scripts = { allow = { env = { "API_TOKEN" } } } } })
    assert.equal(401, ask(g, bearer "wrong"))
    assert.equal(401, ask(g, bearer "correct"))
    assert.is_nil(g:log():find("horse", 1, true))
    assert.has_nothing_left(g)
  end)

  it("authenticates any client that has the secret", function()
    local g <close> = start('return auth.bearer { secret = "0123456789abcdef0123", id = "desk", scopes = { "a" } }')
    assert.equal("desk a", ask(g, bearer "0123456789abcdef0123"))
    assert.equal("desk a", ask(g, { Authorization = "bEARER 0123456789abcdef0123" }))
    assert.equal(401, ask(g, bearer "0123456789abcdef012"))
    assert.has_nothing_left(g)
  end)

  it("is checked while it loads", function()
    rejects('return auth.bearer {}', "needs 'secret'")
    rejects('return auth.bearer { secret = secret "NOWHERE" }', "needs 'secret'")
    rejects('return auth.bearer { secret = "short" }', "shorter than 16")
  end)
end)

describe("the id of an API key", function()
  it("is given to nobody by the header of a proxy or the subject of a token", function()
    local key = "mp_" .. ("k"):rep(43)
    for _, prefix in ipairs { "key:", "robot:" } do
      local g <close> = gateway.start { workers = 1, scripts = {
        ["tools/who.lua"] = who,
        ["auth/a_keys.lua"] = ('return auth.keys { prefix = %q, keys = { ann = { sha256 = "%s" } } }'):format(prefix, sha256(key)),
        ["auth/b_proxy.lua"] = 'return auth.proxy { from = { "127.0.0.0/8", "::1" } }',
      } }
      assert.equal(prefix .. "ann ", ask(g, { ["x-api-key"] = key }))
      assert.equal("ann ", ask(g, { ["x-forwarded-user"] = "ann" }))
      assert.equal(401, ask(g, { ["x-forwarded-user"] = prefix .. "ann" }))
      assert.equal(401, ask(g, { ["x-forwarded-user"] = prefix .. "bob" }))
    end
  end)
end)

describe("auth.proxy", function()
  it("believes the header from the proxy, and from no other client", function()
    local near <close> = start('return auth.proxy { from = { "127.0.0.0/8", "::1" }, scopes_header = "x-scopes", scopes = { "all" } }')
    assert.equal("ann@example.com a+all+b", ask(near, { ["x-forwarded-user"] = "ann@example.com", ["x-scopes"] = "a, b" }))
    assert.equal(401, ask(near, {}))
    assert.equal(401, ask(near, { ["x-forwarded-user"] = "local" }))
    assert.equal(401, ask(near, { ["x-forwarded-user"] = "ann", ["x-scopes"] = 'a"b' }))
    assert.has_nothing_left(near)
    local far <close> = start('return auth.proxy { from = { "10.0.0.0/8", "128.0.0.1", "::ffff:0:0" } }')
    assert.equal(401, ask(far, { ["x-forwarded-user"] = "ann" }))
    assert.has_nothing_left(far)
  end)

  it("is checked while it loads", function()
    rejects('return auth.proxy {}', "needs 'from'")
    for _, from in ipairs { "10.0.0.0/33", "10.0.0/8", "::1/129", "localhost", "10.0.0.0/", "10.0.0.0/8x" } do
      rejects(('return auth.proxy { from = { %q } }'):format(from), "is neither an address nor a network")
    end
  end)
end)

describe("auth.introspection", function()
  local function issuer(answer)
    local self = { asked = 0 }
    self.server = stub.start(function(request, reply)
      self.asked, self.last = self.asked + 1, request
      self.answer(request.body:match "^token=([^&]*)", reply)
    end)
    self.answer = answer
    return setmetatable(self, { __close = function() self.server:__close() end })
  end

  local function served(idp, more)
    return start(([[return auth.introspection { url = "%s/introspect", client_id = "gate way", client_secret = "s/cret", audience = "https://mcp.test", %s }]])
      :format(idp.server.url, more or ""), { constants = { http_idle_ms = 5 }, config = { scripts = { allow = { net = { idp.server.at } } } } })
  end

  local function active(more)
    return tokens.merge({ active = true, sub = "ann", scope = "a b", aud = "https://mcp.test", exp = os.time() + 600 }, more)
  end

  it("asks once for a token that many requests bring, and gives each of them its principal", function()
    local idp <close> = issuer(function(_, reply) reply:later(30, function() reply:json(active()) end) end)
    local g <close> = served(idp)
    local connections = {}
    for i = 1, 5 do connections[i] = send(client.connect(g), bearer "tok+en") end
    for _, connection in ipairs(connections) do
      assert.equal("ann a+b", (told(connection)))
      connection:close()
    end
    assert.equal("ann a+b", ask(g, bearer "tok+en"))
    assert.equal(1, idp.asked)
    assert.equal("token=tok%2Ben&token_type_hint=access_token", idp.last.body)
    assert.equal("Basic " .. "Z2F0ZSUyMHdheTpzJTJGY3JldA==", idp.last.headers.authorization)
    assert.has_nothing_left(g)
  end)

  it("refuses a token that is inactive, for another audience or expired, and an answer that is malformed", function()
    local idp <close> = issuer(function(token, reply)
      local answers = {
        off = { active = false }, others = active { aud = "https://other.test" }, nobody = active { aud = tokens.json.null }, over = active { exp = 1 },
        nameless = active { sub = tokens.json.null },
      }
      reply:json(answers[token])
    end)
    local g <close> = served(idp)
    for _, token in ipairs { "off", "others", "nobody", "over", "nameless" } do
      for _ = 1, 2 do assert.equal(401, (ask(g, bearer(token))), token) end
    end
    assert.equal(5, idp.asked)
    assert.equal(401, (ask(g, {})))
    assert.equal(5, idp.asked)
    assert.has_nothing_left(g)
  end)

  it("answers 503 while the issuer is down, pauses its requests, and still authenticates cached tokens", function()
    local idp <close> = issuer(function(_, reply) reply:json(active()) end)
    local g <close> = served(idp)
    assert.equal("ann a+b", ask(g, bearer "known"))
    idp.answer = function(_, reply) reply:send(500) end
    local status, response = ask(g, bearer "new")
    assert.equal(503, status)
    assert.is_string(response.headers["retry-after"])
    for i = 1, 5 do assert.equal(503, (ask(g, bearer("new" .. i)))) end
    assert.is_true(idp.asked <= 4) -- 2 requests, or more if the machine stands still until the next try is due
    assert.equal("ann a+b", ask(g, bearer "known"))
    idp.answer = function(_, reply) reply:json(active()) end
    wait.for_fact("another try", 20, function() return ask(g, bearer "new") == "ann a+b" end)
    assert.is_nil(g:log():find("s/cret", 1, true))
    assert.is_nil(g:log():find("s%2Fcret", 1, true))
    assert.has_nothing_left(g)
  end)

  it("treats a token that the issuer refuses to check as invalid, not as an outage", function()
    local idp <close> = issuer(function(token, reply)
      if token == "good" then reply:json(active()) else reply:send(400) end
    end)
    local g <close> = served(idp)
    for _ = 1, 2 do assert.equal(401, (ask(g, bearer "junk"))) end
    assert.equal("ann a+b", ask(g, bearer "good"))
    assert.equal(2, idp.asked)
    assert.has_nothing_left(g)
  end)

  it("logs that the issuer refuses the gateway's own credentials", function()
    local idp <close> = issuer(function(_, reply) reply:send(401) end)
    local g <close> = served(idp)
    assert.equal(503, (ask(g, bearer "any")))
    g:wait_log "introspection refused"
    assert.has_nothing_left(g)
  end)

  it("tries one token to find out whether an outage is over, before the pause ends, and then authenticates the others", function()
    local idp <close> = issuer(function(_, reply) reply:send(500) end)
    local g <close> = served(idp)
    assert.equal(503, (ask(g, bearer "t0")))
    for i = 1, 4 do wait.for_fact("probe " .. i, 10, function() return ask(g, bearer("t" .. i)) and idp.asked > i end) end
    local began = os.time()
    -- the pause before the next request to the issuer is now 12 seconds or more
    idp.answer = function(_, reply) reply:json(active()) end
    wait.for_fact("an answer", 10, function() return ask(g, bearer "good") == "ann a+b" end)
    assert.is_true(os.time() - began <= 10)
    assert.equal("ann a+b", ask(g, bearer "other"))
    assert.has_nothing_left(g)
  end)

  it("leaves the table that its function gave alone", function()
    local idp <close> = issuer(function(token, reply)
      reply:json(active { exp = token == "short" and os.time() - 54 or os.time() + 600 })
    end)
    local g <close> = served(idp, '(function() local shared = { id = "ann", scopes = { "x" } } return function() return shared end end)()')
    assert.equal("ann x", ask(g, bearer "short"))
    wait.for_fact("the short one to end", 20, function() return ask(g, bearer "short") == 401 end)
    assert.equal("ann x", ask(g, bearer "long"))
    assert.has_nothing_left(g)
  end)

  it("is checked while it loads", function()
    rejects('return auth.introspection { url = "http://idp.test/x" }', "scripts/auth/main.lua:1: auth.introspection: 'url': the URL is not https")
    rejects('return auth.introspection { url = "https://idp.test/x" }', "may not connect to idp.test:443: no grant allows it")
    local function granted() return { config = { scripts = { allow = { net = { "idp.test" } } } } } end
    rejects('return auth.introspection { url = "https://idp.test/x" }', "needs 'client_id' and 'client_secret'", granted())
    rejects('return auth.introspection { url = "https://idp.test/x", client_id = "a", client_secret = "b" }', "'audience' must be a string", granted())
  end)
end)

describe("auth.tls", function()
  it("authenticates clients by their certificates, and refuses clients without one", function()
    local authority = certificates.make { subject = "/CN=Spec authority", is_authority = true }
    local here = certificates.here()
    local made = {
      robot = certificates.make({ subject = "/O=Example/CN=robot" }, authority),
      desk = certificates.make({ subject = "/CN=any", sans = "URI:spiffe://example/desk" }, authority),
      pinned = certificates.make({ subject = "/CN=pinned" }, authority), other = certificates.make({ subject = "/CN=robot" }, authority),
    }
    local files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key, ["ca.pem"] = authority.own }
    for name, pair in pairs(made) do files[name .. ".pem"], files[name .. ".key"] = pair.certificate, pair.key end
    local g <close> = start(([[return auth.tls { clients = {
      { subject = "CN=robot,O=Example", issuer = "CN=Spec authority", id = "robot", scopes = { "a" } },
      { san = "URI:spiffe://example/desk", id = "desk" }, { fingerprint = %q, subject = "CN=pinned", id = "pinned" },
      { fingerprint = %q, subject = "CN=another", id = "both must hold" },
    } }]]):format(certificates.fingerprint(made.pinned.own):upper():gsub("%x%x", "%0:"):sub(1, -2), certificates.fingerprint(made.other.own)), {
      files = files, config = { listen = { { address = "127.0.0.1:0",
        tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem", client = "optional" } } } },
    })
    local function as(name)
      local tls = { name = "localhost", ca = g.dir .. "/cert.pem" }
      if name then tls.certificate, tls.key = g.dir .. "/" .. name .. ".pem", g.dir .. "/" .. name .. ".key" end
      local connection <close> = client.connect(g, { tls = tls })
      return (told(send(connection, {})))
    end
    assert.same({ "robot a", "desk ", "pinned ", 401, 401 }, { as "robot", as "desk", as "pinned", as "other", as() })
    assert.has_nothing_left(g)
  end)

  it("refuses a certificate that has expired on a connection opened before it expired", function()
    local authority = certificates.make { subject = "/CN=Spec authority", is_authority = true }
    local here, ends = certificates.here(), os.time() + 8 -- time for a busy machine to start the gateway
    local made = certificates.make({ subject = "/CN=brief", ends = ends }, authority)
    local g <close> = start('return auth.tls { clients = { { subject = "CN=brief", issuer = "CN=Spec authority", id = "brief" } } }', {
      files = { ["cert.pem"] = here.certificate, ["key.pem"] = here.key, ["ca.pem"] = authority.own, ["a.pem"] = made.certificate, ["a.key"] = made.key },
      config = { listen = { { address = "127.0.0.1:0", tls = { certificate = "cert.pem", key = "key.pem", client_ca = "ca.pem" } } } },
    })
    local connection <close> = client.connect(g, { tls = {
      name = "localhost", ca = g.dir .. "/cert.pem", certificate = g.dir .. "/a.pem", key = g.dir .. "/a.key" } })
    assert.equal("brief ", (told(send(connection, {}))))
    wait.for_fact("the certificate to expire", 20, function() return os.time() >= ends end)
    assert.equal(401, (told(send(connection, {}))))
    connection:close()
    assert.has_nothing_left(g)
  end)
end)

describe("options that are not there", function()
  it("are refused with the nearest option that exists", function()
    rejects('return auth.jwt { issuer = "https://a.test", audence = "b" }', "did you mean 'audience'?")
    rejects('return auth.jwt { issuer = "https://a.test" }', "'audience' must be a string")
    rejects('return auth.tls {}', "needs 'clients'")
    rejects('return auth.tls { clients = { { id = "a" } } }', "'subject', 'san' or 'fingerprint'")
    rejects('return auth.tls { clients = { { id = "a", san = "a.test" } } }', "must begin with its kind")
  end)
end)
