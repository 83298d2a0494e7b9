-- Keys that are fetched: found, shared, rotated, and kept while their issuer is down, slow or sends wrong keys (A-10,
-- A-15, B-119).
local gateway = require "spec.helpers.gateway"
local issuers = require "spec.helpers.issuer"
local tokens = require "spec.helpers.tokens"
local wait = require "spec.helpers.wait"

local script = [[
local people = jwt.verifier { issuer = "%s", audience = "]] .. tokens.AUDIENCE .. [[", %s }
return tool { "Who.", input = { token = t.string }, function(args)
  local claims, why, kind = people:verify(args.token)
  return claims and claims.sub or (kind or "refused") .. ": " .. why
end }]]

-- A gateway whose tool `who` verifies tokens of `idp`.
local function start(idp, options, workers)
  return gateway.start {
    scripts = { ["tools/who.lua"] = script:format(idp.url, options or "") }, workers = workers or 1,
    constants = { http_idle_ms = 5 }, config = { scripts = { allow = { net = { idp.at } } } },
  }
end

-- Like `gateway_of`, with verifiers that each call makes.
local function start_many(idp, net)
  return gateway.start {
    scripts = { ["tools/who.lua"] = ([[return tool { "Who.",
      input = { token = t.string, issuer = t.string { optional = true }, jwks = t.string { optional = true } }, function(args)
        local people = jwt.verifier { issuer = args.issuer or %q, audience = %q, jwks = args.jwks }
        local claims, why, kind = people:verify(args.token)
        return claims and claims.sub or (kind or "refused") .. ": " .. why
      end }]]):format(idp.url, tokens.AUDIENCE) },
    workers = 1, constants = { http_idle_ms = 5 }, config = { scripts = { allow = { net = { idp.at, table.unpack(net or {}) } } } },
  }
end

local function who_of(me, token, more)
  more.token = token
  return me:result("tools/call", { name = "who", arguments = more }).content[1].text
end

local function who(me, token) return me:result("tools/call", { name = "who", arguments = { token = token } }).content[1].text end

local function ask(me, token) return me:open("tools/call", { name = "who", arguments = { token = token } }) end

local function answer_of(stream) return stream:answer().result.content[1].text end

local unavailable = "unavailable: the issuer's keys cannot be fetched at the moment"
local unknown = "refused: the token is signed with a key that the issuer does not have"

describe("keys of an issuer", function()
  it("are found by its metadata, and fetched once for all requests and workers that wait", function()
    local key = tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    idp.answer = function(_, reply, body) reply:later(50, function() reply:send(200, {}, body) end) end
    local g <close> = start(idp, "", 2)
    local clients, streams = {}, {}
    for i = 1, 8 do
      clients[i] = g:client "2026-07-28"
      streams[i] = ask(clients[i], idp:token(key, { sub = "user" .. i }))
    end
    for i, stream in ipairs(streams) do assert.equal("user" .. i, answer_of(stream)) end
    assert.equal(1, idp:fetches())
    for _, me in ipairs(clients) do me:close() end
    assert.has_nothing_left(g)
  end)

  it("are shared by generations of scripts", function()
    local key = tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    local g <close> = start(idp)
    local me = g:client "2026-07-28"
    assert.equal("alice", who(me, idp:token(key)))
    idp.answer = function(_, reply) reply:send(500) end
    do
      local file <close> = assert(io.open(g.dir .. "/scripts/tools/other.lua", "wb"))
      file:write "return tool { 'Other.', function() return 1 end }"
    end
    assert.equal("+ other\n", g:admin("/reload", "POST").body)
    assert.equal("bob", who(me, idp:token(key, { sub = "bob" })))
    assert.equal(1, idp:fetches())
    me:close()
    assert.has_nothing_left(g)
  end)

  it("are fetched again when one is not known: once, however many ask", function()
    local old, new = tokens.issuer("ES256", "k1"), tokens.issuer("EdDSA", "k2")
    local idp <close> = issuers.start(old)
    local g <close> = start(idp, "", 2)
    local me = g:client "2026-07-28"
    assert.equal("alice", who(me, idp:token(old)))
    idp:publish(new)
    assert.equal("alice", who(me, idp:token(new)))
    assert.equal(2, idp:fetches())
    for i = 1, 300 do assert.equal(unknown, who(me, idp:token(new, {}, { kid = "x" .. i }))) end
    assert.equal(2, idp:fetches())
    assert.equal(unknown, who(me, idp:token(old))) -- a token that was valid and is revoked
    assert.equal("alice", who(me, idp:token(new)))
    me:close()
    assert.has_nothing_left(g)
  end)

  it("stay valid while the issuer is down or slow, and no request waits for it", function()
    local key, evil = tokens.issuer("ES256", "k1"), tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    local g <close> = start(idp, "refresh = 0.1, refetch = 0.1")
    local me = g:client "2026-07-28"
    assert.equal("alice", who(me, idp:token(key)))
    local seen, held = 0, nil
    idp.answer = function(_, reply)
      seen = seen + 1
      if seen == 1 then reply:send(500) else held = reply end
    end
    wait.for_fact("a fetch that fails", 20, function()
      assert.equal("alice", who(me, idp:token(key, { jti = tostring(seen) })))
      return seen >= 2
    end)
    g:wait_log("keys not fetched", { failures = "1" })
    assert.equal("refused: the token's signature is not the issuer's", who(me, idp:token(evil)))
    held:send(500)
    me:close()
    assert.has_nothing_left(g)
  end)

  local lies = {
    ["nothing"] = "{}", ["no keys"] = '{"keys":[]}', ["a secret"] = '{"keys":[{"kty":"oct","k":"AAAA","kid":"k1"}]}',
    ["a list twice"] = '{"keys":[],"keys":[]}',
    ["brackets"] = ("["):rep(100000), ["too much"] = '{"keys":[],"x":"' .. ("x"):rep(300000) .. '"}', ["a number"] = "7",
    ["keys that are a text"] = '{"keys":"k1"}',
    ["keys that are none"] = '{"keys":[1,null,{},"x",{"kty":"EC"},{"kty":"RSA","n":1,"e":2},{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}',
    ["a private key"] = '{"keys":[{"kty":"OKP","crv":"Ed25519","d":"AAAA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}',
  }

  it("are refused when the answer of the issuer has no keys", function()
    local key = tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    local answers = { function(_, reply) reply:send(302, { location = "http://127.0.0.1:1/" }) end, function(_, reply) reply:close() end }
    for _, lie in pairs(lies) do answers[#answers + 1] = function(_, reply) reply:send(200, {}, lie) end end
    idp.answer = function(request, reply) answers[tonumber(request.path:match "%d+")](request, reply) end
    local g <close> = start_many(idp)
    local me = g:client "2026-07-28"
    for i = 1, #answers do assert.equal(unavailable, who_of(me, idp:token(key), { jwks = idp.url .. "/keys" .. i })) end
    me:close()
    assert.has_nothing_left(g)
  end)

  it("are fetched only from granted addresses, in any spelling of the address (B-115)", function()
    local key = tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    local inner <close> = issuers.start(key)
    local port = inner.server.port
    local uris = {
      "https://169.254.169.254/latest/meta-data", "https://[::ffff:7f00:1]:" .. port .. "/keys", "https://0x7f.1:" .. port .. "/keys",
      "https://2130706433:" .. port .. "/keys", "https://localhost:" .. port .. "/keys", "https://100.64.0.1/keys", "file:///etc/passwd",
      "gopher://127.0.0.1/", "https://user:word@127.0.0.1:" .. port .. "/keys", "https://[::1]:" .. port .. "/keys", "//127.0.0.1/keys", "", 7,
    }
    idp.metadata = function(issuer) return { issuer = issuer, jwks_uri = uris[tonumber(issuer:match "%d+$")] } end
    local g <close> = start_many(idp, { "*:*" })
    local me = g:client "2026-07-28"
    for i = 1, #uris do
      local issuer = idp.url .. "/" .. i
      assert.equal(unavailable, who_of(me, idp:token(key, { iss = issuer }), { issuer = issuer }))
    end
    assert.equal(0, idp:fetches() + inner.server.accepted)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("that cannot be fetched at first are no fault of the token, and are fetched again later", function()
    local key = tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    idp.answer = function(_, reply) reply:send(503) end
    local g <close> = start(idp)
    local me = g:client "2026-07-28"
    assert.equal(unavailable, who(me, idp:token(key)))
    assert.equal(unavailable, who(me, idp:token(key)))
    assert.equal(1, idp:fetches())
    idp.answer = nil
    wait.for_fact("another try", 20, function() return who(me, idp:token(key)) == "alice" end)
    assert.is_true(idp:fetches() <= 3)
    me:close()
    assert.has_nothing_left(g)
  end)

  it("are fetched for the requests that still wait when the first one was cancelled", function()
    local key = tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    local held
    idp.answer = function(_, reply, body) held = function() reply:send(200, {}, body) end end
    local g <close> = start(idp)
    local first, second = g:client "2026-07-28", g:client "2026-07-28"
    local gone = ask(first, idp:token(key))
    wait.for_fact("the fetch", 20, function() return held end)
    local stays = ask(second, idp:token(key, { sub = "bob" }))
    g:wait_status(function(status) return status.gauges.requests_in_flight == 2 end)
    gone:hang_up()
    g:wait_status(function(status) return status.gauges.requests_in_flight == 1 end)
    held()
    assert.equal("bob", answer_of(stays))
    assert.equal(1, idp:fetches())
    first:close()
    second:close()
    assert.has_nothing_left(g)
  end)

  it("are not taken from metadata of another issuer, nor over plain http from elsewhere", function()
    local key = tokens.issuer("ES256", "k1")
    local idp <close> = issuers.start(key)
    local g <close> = start(idp)
    local me = g:client "2026-07-28"
    local function tell(issuer, uri) idp.metadata = function() return { issuer = issuer, jwks_uri = uri } end end
    tell("https://other.test", idp.url .. "/keys")
    assert.equal(unavailable, who(me, idp:token(key)))
    g:wait_log("keys not fetched", { failures = "1" })
    tell(idp.url, "http://keys.test/keys")
    wait.for_fact("another try", 20, function()
      who(me, idp:token(key))
      return g:log():find("the URL is not https", 1, true)
    end)
    tell(idp.url, "http://127.0.0.1:1/keys")
    wait.for_fact("a third", 20, function()
      who(me, idp:token(key))
      return g:log():find("no grant allows it", 1, true)
    end)
    assert.equal(0, idp:fetches())
    me:close()
    assert.has_nothing_left(g)
  end)
end)
