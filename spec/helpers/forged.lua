-- Tokens that a gateway must refuse, each with a name: broken, unsigned, with a foreign signature, for another
-- audience, expired.
--   forged.tokens(ctx) -> { { name, token }, … }    ctx: { issuer =, rsa =, stranger = }, made by forged.context()
--   forged.headers(ctx) -> { { name, value of Authorization }, … }
local tokens = require "spec.helpers.tokens"

local forged = {}

local json, keys = tokens.json, tokens.keys
local encode, url = json.encode, keys.base64url

--- An issuer with an EC and an RSA key, and a stranger with other keys.
function forged.context()
  return {
    issuer = tokens.issuer("ES256", "k1"), rsa = tokens.issuer("RS256", "k2"), ed = tokens.issuer("EdDSA", "k3"),
    stranger = tokens.issuer("ES256", "k1"), strange_rsa = tokens.issuer("RS256", "k2"),
  }
end

local function head(more)
  local made = { alg = "ES256", typ = "at+jwt", kid = "k1" }
  tokens.merge(made, more)
  return encode(made)
end

local function body(more) return encode(tokens.claims(more)) end

local function parts(token) return token:match "^([^.]*)%.([^.]*)%.([^.]*)$" end

-- A token of the issuer with another header around the same signature.
local function reheaded(ctx, more)
  local _, payload, signature = parts(ctx.issuer:token())
  return url(head(more)) .. "." .. payload .. "." .. signature
end

-- The DER form of an ECDSA signature, which JWS does not allow.
local function der(raw)
  local function number(bytes)
    bytes = bytes:gsub("^\0+", "")
    if bytes:byte() >= 128 then bytes = "\0" .. bytes end
    return "\2" .. string.char(#bytes) .. bytes
  end
  local both = number(raw:sub(1, 32)) .. number(raw:sub(33))
  return "\48" .. string.char(#both) .. both
end

local ORDER = "\255\255\255\255\0\0\0\0" .. ("\255"):rep(8) .. "\188\230\250\173\167\23\158\132\243\185\202\194\252\99\37\81"

local function signature_of(ctx, change)
  local header, payload, signature = parts(ctx.issuer:token())
  return header .. "." .. payload .. "." .. url(change(keys.unbase64url(signature)))
end

local function hmac(digest, secret, header, payload)
  local input = url(header) .. "." .. url(payload)
  return input .. "." .. url(keys.digest.hmac(digest, secret, input))
end

-- Invalid claims by name; the good key signs them.
local claims = {
  ["another issuer"] = { iss = "https://evil.test" }, ["an issuer with a slash"] = { iss = tokens.ISSUER .. "/" },
  ["an issuer in capitals"] = { iss = tokens.ISSUER:upper() }, ["no issuer"] = { iss = json.null },
  ["an issuer that is a list"] = { iss = json.array { tokens.ISSUER } }, ["an issuer that is a number"] = { iss = 7 },
  ["another audience"] = { aud = "https://other.test/mcp" }, ["no audience"] = { aud = json.null },
  ["an audience that only begins the same"] = { aud = tokens.AUDIENCE .. "/admin" }, ["an audience cut short"] = { aud = "https://mcp.test" },
  ["an empty list of audiences"] = { aud = json.array {} }, ["audiences that are others'"] = { aud = json.array { "https://a.test", "https://b.test" } },
  ["audiences that are no texts"] = { aud = json.array { tokens.AUDIENCE, 7 } }, ["an audience that is an object"] = { aud = { [tokens.AUDIENCE] = true } },
  ["the time over"] = { exp = os.time() - 61 }, ["the time over long since"] = { exp = 1 }, ["no end"] = { exp = json.null },
  ["an end that is a text"] = { exp = tostring(os.time() + 600) }, ["an end beyond all numbers"] = { exp = 1e300 },
  ["an end that is negative"] = { exp = -5 }, ["an end that is true"] = { exp = true },
  ["a beginning that is to come"] = { nbf = os.time() + 600 }, ["a beginning that is a text"] = { nbf = "0" },
  ["an issue that is to come"] = { iat = os.time() + 600 }, ["an issue that is a list"] = { iat = json.array { 1 } },
  ["a subject that is a number"] = { sub = 1 }, ["a subject that is empty"] = { sub = "" }, ["a client that is an object"] = { client_id = { a = 1 } },
}

-- Invalid headers by name, of tokens that the good key signs.
local headers = {
  ["'crit' with a name nobody knows"] = { crit = json.array { "exp" } }, ["an empty 'crit'"] = { crit = json.array {} },
  ["an unencoded payload"] = { b64 = false, crit = json.array { "b64" } }, ["'b64' without 'crit'"] = { b64 = false },
  ["a type of another kind"] = { typ = "logout+jwt" }, ["a proof for a type"] = { typ = "dpop+jwt" }, ["a type that is a number"] = { typ = 1 },
  ["a nested token by its header"] = { cty = "JWT" }, ["a 'kid' that is a number"] = { kid = 1 }, ["a 'kid' that nobody knows"] = { kid = "nobody" },
  ["a 'kid' that is a path"] = { kid = "../../../dev/null" }, ["a 'kid' that is SQL"] = { kid = "' union select 'key" },
  ["a 'kid' of 300 bytes"] = { kid = ("k"):rep(300) }, ["a 'kid' of another kind of key"] = { kid = "k2" },
  ["an algorithm in small letters"] = { alg = "es256" }, ["an algorithm that is a list"] = { alg = json.array { "ES256" } },
  ["no algorithm"] = { alg = json.null }, ["an algorithm of another key"] = { alg = "RS256" }, ["an algorithm of another curve"] = { alg = "ES384" },
  ["an algorithm nobody knows"] = { alg = "ES256K" },
}

local function sorted(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names)
  return ipairs(names)
end

local function unsigned(add)
  for _, alg in ipairs { "none", "None", "NONE", "nOnE" } do
    add("alg '" .. alg .. "' without a signature", url(head { alg = alg }) .. "." .. url(body()) .. ".")
  end
  add("alg 'none' with a signature", tokens.join(head { alg = "none" }, body(), "x"))
end

local function confused(add, ctx)
  add("HS256 by the public key as PEM", hmac("sha256", ctx.rsa.pem, head { alg = "HS256", kid = "k2" }, body()))
  add("HS512 by the public key as PEM", hmac("sha512", ctx.issuer.pem, head { alg = "HS512" }, body()))
  add("HS256 by the modulus", hmac("sha256", keys.unbase64url(ctx.rsa.jwk.n), head { alg = "HS256", kid = "k2" }, body()))
  add("HS256 by an empty secret", hmac("sha256", "", head { alg = "HS256" }, body()))
end

local function strange(add, ctx)
  add("another's key under our 'kid'", ctx.stranger:token())
  add("another's RSA key under our 'kid'", ctx.strange_rsa:token())
  add("another's key, brought along as 'jwk'", ctx.stranger:token({}, { jwk = ctx.stranger.jwk, kid = json.null }))
  add("another's key under 'jwk' and our 'kid'", ctx.stranger:token({}, { jwk = ctx.stranger.jwk }))
  add("another's key behind 'jku'", ctx.stranger:token({}, { jku = "http://127.0.0.1:1/keys" }))
  add("another's key behind 'x5u'", ctx.stranger:token({}, { x5u = "http://127.0.0.1:1/certificate" }))
  add("another's certificate as 'x5c'", ctx.stranger:token({}, { x5c = json.array { "MIIB" } }))
  add("no 'kid' where there are several keys of its kind", ctx.stranger:token({}, { kid = json.null }))
end

local function signatures(add, ctx)
  add("a signature of zeros", signature_of(ctx, function() return ("\0"):rep(64) end))
  add("a signature whose r is zero", signature_of(ctx, function(raw) return ("\0"):rep(32) .. raw:sub(33) end))
  add("a signature whose s is zero", signature_of(ctx, function(raw) return raw:sub(1, 32) .. ("\0"):rep(32) end))
  add("a signature of the curve's order", signature_of(ctx, function() return ORDER .. ORDER end))
  add("a signature as DER", signature_of(ctx, der))
  add("a signature with a byte more", signature_of(ctx, function(raw) return raw .. "\0" end))
  add("a signature with a byte less", signature_of(ctx, function(raw) return raw:sub(1, -2) end))
  add("a signature with a bit changed", signature_of(ctx, function(raw) return raw:sub(1, -2) .. string.char(raw:byte(-1) ~ 1) end))
  add("a signature with its halves changed", signature_of(ctx, function(raw) return raw:sub(33) .. raw:sub(1, 32) end))
  local header, _, signature = parts(ctx.issuer:token())
  add("a payload changed after it was signed", header .. "." .. url(body { sub = "root", scope = "*" }) .. "." .. signature)
  add("a header changed after it was signed", reheaded(ctx, { typ = "JWT" }))
  add("RS256 changed to PS256", (function()
    local _, payload, sig = parts(ctx.rsa:token())
    return url(head { alg = "PS256", kid = "k2" }) .. "." .. payload .. "." .. sig
  end)())
end

local function shapes(add, ctx)
  local good = ctx.issuer:token()
  local header, payload, signature = parts(good)
  add("one part", header)
  add("two parts", header .. "." .. payload)
  add("four parts", good .. ".x")
  add("five parts, as an encrypted one has", good .. ".x.y")
  add("only dots", "..")
  add("no header", "." .. payload .. "." .. signature)
  add("no payload", header .. ".." .. signature)
  add("no signature", header .. "." .. payload .. ".")
  add("a signature with padding", good .. "==")
  add("the usual Base64", (header .. "." .. payload .. "." .. signature:sub(1, -3) .. "+/"))
  add("a payload with bits left over", header .. "." .. payload .. "A." .. signature)
  add("a quote in front", '"' .. good .. '"')
  add("a header that is no JSON", ctx.issuer:sign("{alg:ES256}", body()))
  add("a header that is a list", ctx.issuer:sign('["ES256"]', body()))
  add("a header with a key twice", ctx.issuer:sign('{"alg":"none","alg":"ES256","kid":"k1"}', body()))
  add("a payload that is no JSON", ctx.issuer:sign(head(), "alice"))
  add("a payload that is a list", ctx.issuer:sign(head(), "[1]"))
  add("a payload that is null", ctx.issuer:sign(head(), "null"))
  add("a payload with a key twice", ctx.issuer:sign(head(), body():gsub("}$", ',"sub":"root"}')))
  add("a payload with a NUL behind it", ctx.issuer:sign(head(), body() .. "\0"))
  add("a payload that is not UTF-8", ctx.issuer:sign(head(), (body():gsub("alice", "al\xffce"))))
  add("a payload of brackets", ctx.issuer:sign(head(), ("["):rep(5000)))
  add("a header of 3000 bytes", ctx.issuer:sign(head { pad = ("x"):rep(3000) }, body()))
  add("a payload of 15000 bytes", ctx.issuer:sign(head(), body { pad = ("x"):rep(15000) }))
  add("a token in a token", ctx.issuer:sign(head { cty = "JWT" }, good))
end

--- All forged tokens: a list of { name, token }.
function forged.tokens(ctx)
  local list = {}
  local function add(name, token) list[#list + 1] = { name = name, token = token } end
  unsigned(add)
  confused(add, ctx)
  strange(add, ctx)
  signatures(add, ctx)
  shapes(add, ctx)
  for _, name in sorted(claims) do add("with " .. name, ctx.issuer:token(claims[name])) end
  for _, name in sorted(headers) do add("with " .. name, ctx.issuer:token({}, headers[name])) end
  return list
end

--- Values of Authorization that authenticate no principal (B-71).
function forged.headers(ctx)
  local good = ctx.issuer:token()
  return {
    { name = "the scheme alone", value = "Bearer" }, { name = "the scheme and a space", value = "Bearer " },
    { name = "a short word", value = "bearer x" }, { name = "100 KB", value = "Bearer " .. ("a"):rep(30000) },
    { name = "another scheme", value = "Basic =" }, { name = "another scheme with the token", value = "Token " .. good },
    { name = "no scheme", value = good }, { name = "a comma behind it", value = "Bearer " .. good .. ", Bearer " .. good },
    { name = "the scheme twice", value = "Bearer Bearer " .. good }, { name = "a parameter", value = 'Bearer token="' .. good .. '"' },
  }
end

return forged
