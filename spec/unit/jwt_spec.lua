-- Tokens: which are verified, which are refused, and that a refusal costs at most one check of a signature.
package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path

local forged = require "spec.helpers.forged"
local grouped = require("spec.helpers.host").grouped
local tokens = require "spec.helpers.tokens"

local keys, json = tokens.keys, tokens.json
local unbase64url = keys.unbase64url

-- Counts the checks of signatures.
local checks = 0
local counted = {}

local function forget()
  for name in pairs(package.loaded) do
    if name:find "^moonpool" then package.loaded[name] = nil end
  end
end

-- The library in plain Lua, with the keys and JSON modules of C.
local function library()
  forget()
  local host = grouped {
    ["digest.sum"] = keys.digest.sum,
    ["auth.token_id"] = function(text) return keys.digest.sum("sha256", text) end, ["time.now"] = os.clock,
    ["time.sleep"] = function() end, ["log.write"] = function() end,
    ["random.bytes"] = function(n) return ("\1"):rep(n) end, ["script.root"] = "scripts", ["script.edit_distance"] = require("modules").edit_distance,
    ["secret.reveal"] = function() end, ["task.event"] = function() end, ["config.grants"] = {},
    ["limits.http"] = { body = 1 << 20, time = 30 }, ["config.folder"] = "/srv",
    ["http.url"] = function(url)
      local scheme, name, port = url:match "^(%a+)://([^/:]+):?(%d*)"
      if not scheme then return nil, "this is no URL" end
      return { scheme = scheme, host = name, port = tonumber(port) or (scheme == "https" and 443 or 80), url = url, path = "/" }
    end,
    ["http.address"] = function() end,
  }
  package.loaded["moonpool.host"], package.loaded["moonpool.json"] = host, json
  package.loaded["moonpool.error_codes"], package.loaded["moonpool.events"] = require("modules").error_codes, require("modules").events
  for name, f in pairs(keys) do counted[name] = f end
  package.loaded["moonpool.keys"] = counted
  return require "moonpool.lib.jwt"
end

local function script(net) return { path = "auth/main.lua", granted = { net = net or {}, read = {}, write = {}, run = {}, env = {} } } end

local function jwks(...) return json.decode(tokens.jwks(...)) end

local function counting(key)
  return setmetatable({}, { __index = function(_, name)
    return function(_, ...)
      if name == "verify" then checks = checks + 1 end
      return key[name](key, ...)
    end
  end })
end

describe("a verifier of tokens", function()
  local jwt

  before_each(function() jwt = library() end)
  after_each(forget)

  local function verifier(more, ...)
    local options = { issuer = tokens.ISSUER, audience = tokens.AUDIENCE, jwks = jwks(...) }
    tokens.merge(options, more)
    return (jwt.make(options, script(), "jwt.verifier"))
  end

  it("knows the examples of RFC 7515 and RFC 8037", function()
    local n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOW" ..
      "vG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5" ..
      "IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"
    local payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    local examples = {
      { "RS256", keys.rsa(unbase64url(n), "\1\0\1"), "eyJhbGciOiJSUzI1NiJ9." .. payload ..
        ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdi" ..
        "uB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2" ..
        "w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw" },
      { "ES256", keys.ec("P-256", unbase64url "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", unbase64url "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"),
        "eyJhbGciOiJFUzI1NiJ9." .. payload .. ".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q" },
      { "ES512", keys.ec("P-521", unbase64url "AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk",
        unbase64url "ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2"), "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA." ..
        "AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqO" ..
        "gzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn" },
      { "EdDSA", keys.ed25519(unbase64url "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"), "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc." ..
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg" },
    }
    for _, example in ipairs(examples) do
      local _, _, signature, input = keys.split(example[3])
      assert.is_true(example[2]:verify(example[1], input, signature), example[1])
      assert.is_false(example[2]:verify(example[1], input .. "x", signature), example[1])
    end
  end)

  it("takes what its issuer signs, by every algorithm", function()
    for _, algorithm in ipairs { "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519" } do
      local issuer = tokens.issuer(algorithm, "k1")
      local claims, why = verifier({}, issuer):verify(issuer:token { sub = "bob" })
      assert.equal("bob", claims and claims.sub, algorithm .. ": " .. tostring(why))
      assert.is_table((verifier({ jwks = json.null, key = issuer.pem }):verify(issuer:token())))
    end
  end)

  it("takes every form that is one", function()
    local issuer = tokens.issuer("ES256", "k1")
    local v = verifier({}, issuer, tokens.issuer("RS256", "k2"))
    for _, header in ipairs { { typ = "JWT" }, { typ = "jwt" }, { typ = "application/at+jwt" }, { typ = json.null }, { kid = json.null } } do
      assert.is_table(v:verify(issuer:token({}, header)))
    end
    for _, more in ipairs {
      { aud = json.array { "https://a.test", tokens.AUDIENCE } }, { exp = os.time() - 30 }, { nbf = os.time() + 30 }, { iat = os.time() + 30 },
      { exp = os.time() + 0.5 }, { iat = json.null, sub = json.null, client_id = json.null, scope = json.null },
    } do
      assert.is_table(v:verify(issuer:token(more)))
    end
  end)

  it("refuses every forged token, without raising, and for one signature at most (B-118)", function()
    local ctx = forged.context()
    local list = forged.tokens(ctx)
    assert.is_true(#list >= 90, #list)
    for name in pairs { rsa = 1, ec = 1, ed25519 = 1 } do
      counted[name] = function(...)
        local key, why = keys[name](...)
        return key and counting(key), why
      end
    end
    local more = tokens.issuer("ES256", "k4")
    local v = verifier({}, ctx.issuer, ctx.rsa, ctx.ed, more)
    assert.is_table(v:verify(ctx.issuer:token()))
    for _, one in ipairs(list) do
      checks = 0
      for _ = 1, 3 do
        local claims, why = v:verify(one.token)
        assert.is_nil(claims, one.name)
        assert.is_string(why, one.name)
        assert.is_nil(why:find(one.token, 1, true))
      end
      assert.is_true(checks <= 1, one.name .. " costs " .. checks)
    end
    assert.is_table(v:verify(ctx.issuer:token()))
  end)

  it("never raises, for any input", function()
    local issuer = tokens.issuer("ES256", "k1")
    local v = verifier({}, issuer)
    local good = issuer:token()
    for _, value in ipairs {
      false, true, 7, {}, print, "", ("a"):rep(100000), ("."):rep(1000), "\0.\0.\0", ("\255"):rep(50), good .. "\0", " " .. good, good .. "\n",
    } do
      local claims, why = v:verify(value)
      assert.is_nil(claims)
      assert.is_string(why)
    end
    assert.is_nil((v:verify(nil)))
    math.randomseed(7)
    for _ = 1, 2000 do
      local at = math.random(#good)
      local changed = good:sub(1, at - 1) .. string.char(math.random(0, 255)) .. good:sub(at + 1)
      if changed ~= good then assert.is_nil((v:verify(changed))) end
    end
  end)

  it("looks once at a signature, and gives each caller claims of his own", function()
    local issuer = tokens.issuer("ES256", "k1")
    counted.ec = function(...) return counting((keys.ec(...))) end
    local v = verifier({}, issuer)
    local token = issuer:token()
    checks = 0
    for _ = 1, 10 do
      local claims = v:verify(token)
      assert.equal("alice", claims.sub)
      claims.sub = "root"
    end
    assert.equal(1, checks)
  end)

  it("forgets a token when its time is over", function()
    local issuer = tokens.issuer("ES256", "k1")
    local v = verifier({}, issuer)
    local ends = os.time() + 10
    local token = issuer:token { exp = ends }
    assert.is_table(v:verify(token))
    jwt.now = function() return ends + 59 end
    assert.is_table(v:verify(token))
    jwt.now = function() return ends + 61 end
    assert.equal("the token has expired", select(2, v:verify(token)))
  end)

  it("does not take algorithms that were not asked for", function()
    local issuer, rsa = tokens.issuer("ES256", "k1"), tokens.issuer("RS256", "k2")
    local v = verifier({ algorithms = { "ES256" } }, issuer, rsa)
    assert.is_table(v:verify(issuer:token()))
    assert.equal("the token's algorithm is not accepted", select(2, v:verify(rsa:token())))
    rsa.jwk.alg = "PS256"
    assert.is_nil((verifier({}, issuer, rsa):verify(rsa:token())))
  end)

  it("asks for claims that must be there", function()
    local issuer = tokens.issuer("ES256", "k1")
    local v = verifier({ required = { "jti" } }, issuer)
    assert.equal("the token has no 'jti'", select(2, v:verify(issuer:token())))
    assert.is_table(v:verify(issuer:token { jti = "1" }))
  end)

  it("refuses keys that are none, weak or secret", function()
    assert.matches("2048", select(2, keys.rsa(("\255"):rep(128), "\1\0\1")))
    assert.matches("2048 to 8192", select(2, keys.rsa(("\255"):rep(2048), "\1\0\1")))
    assert.matches("exponent", select(2, keys.rsa(("\255"):rep(256), "\1")))
    assert.matches("exponent", select(2, keys.rsa(("\255"):rep(256), "\2")))
    assert.matches("not on its curve", select(2, keys.ec("P-256", ("\1"):rep(32), ("\2"):rep(32))))
    assert.matches("coordinates", select(2, keys.ec("P-256", "\1", "\2")))
    assert.matches("curve", select(2, keys.ec("secp256k1", ("\1"):rep(32), ("\2"):rep(32))))
    assert.matches("32 bytes", select(2, keys.ed25519 "x"))
    local issuer = tokens.issuer("ES256", "k1")
    assert.matches("private key", select(2, keys.public(issuer.private)))
    assert.matches("not PEM", select(2, keys.public "hello"))
    assert.is_nil((keys.private(issuer.pem)))
    local keyset = require "moonpool.lib.jwt.jwks"
    for _, change in ipairs {
      { kty = "oct", k = "AAAA" }, { use = "enc" }, { key_ops = json.array { "sign" } }, { alg = "RS256" }, { d = "AAAA" }, { kid = 7 }, { x = "a b" },
    } do
      local jwk = {}
      for name, value in pairs(issuer.jwk) do jwk[name] = value end
      for name, value in pairs(change) do jwk[name] = value end
      assert.is_nil((keyset.from_jwks { keys = { jwk } }))
      assert.is_table((keyset.from_jwks { keys = { jwk, issuer.jwk } }))
    end
    assert.matches("more than 100", select(2, keyset.from_jwks { keys = (function()
      local list = {}
      for i = 1, 101 do list[i] = issuer.jwk end
      return list
    end)() }))
  end)
end)

describe("the options of a verifier", function()
  local jwt

  before_each(function() jwt = library() end)
  after_each(forget)

  local function complaint(options, net)
    local ok, value = pcall(jwt.make, options, script(net), "jwt.verifier")
    assert.is_false(ok)
    return tostring(value), value.hint or ""
  end

  it("are asked for where leaving them out would open a gate", function()
    local issuer = tokens.issuer("ES256", "k1")
    assert.matches("'issuer' must be a string", (complaint { audience = "a", key = issuer.pem }))
    assert.matches("'audience' must be a string", (complaint { issuer = "https://a.test", key = issuer.pem }))
    assert.matches("there is no option 'audiance'", (complaint { issuer = "https://a.test", audiance = "a" }))
    assert.matches("did you mean 'audience'", select(2, complaint { issuer = "https://a.test", audiance = "a" }))
    assert.matches("'HS256' is not supported", (complaint { issuer = "https://a.test", audience = "a", key = issuer.pem, algorithms = { "HS256" } }))
    assert.matches("private key", (complaint { issuer = "https://a.test", audience = "a", key = issuer.private }))
    assert.matches("'leeway' must be 0 to 600", (complaint { issuer = "https://a.test", audience = "a", key = issuer.pem, leeway = 3600 }))
    assert.matches("both name", (complaint { issuer = "https://a.test", audience = "a", key = issuer.pem, jwks = "https://a.test/keys" }))
  end)

  it("name the grant that is missing, and want https", function()
    local what = complaint { issuer = "https://a.test", audience = "a" }
    assert.matches("auth/main.lua may not connect to a.test:443: no grant allows it", what, 1, true)
    assert.matches("the URL is not https", (complaint({ issuer = "http://a.test", audience = "a" }, { "a.test" })))
    assert.is_table(jwt.make({ issuer = "https://a.test", audience = "a" }, script { "a.test" }, "jwt.verifier"))
    assert.is_table(jwt.make({ issuer = "http://a.test", audience = "a", plain_http = true }, script { "a.test" }, "jwt.verifier"))
    assert.is_table(jwt.make({ issuer = "https://b.test", audience = "a", jwks = "http://localhost:8080/keys" }, script { "localhost:8080" }, "jwt.verifier"))
  end)
end)
