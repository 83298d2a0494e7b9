-- An issuer of tokens: keys, JWKs, and valid and invalid tokens.
--   local issuer = tokens.issuer("ES256", "k1")
--   issuer:token { sub = "alice", … }     a valid token; tokens.claims adds the other claims
--   issuer.jwk, issuer.pem                the public key

local modules = require "modules"
local keys, json = modules.keys, modules.json.lua

local tokens = { ISSUER = "https://issuer.test", AUDIENCE = "https://mcp.test/mcp" }

local base64url = keys.base64url

-- The DER bytes of a PEM text.
local function der_of(pem)
  local text = pem:gsub("%-%-%-%-%-[^\n]*\n", ""):gsub("%s", "")
  return keys.unbase64url((text:gsub("+", "-"):gsub("/", "_"):gsub("=", "")))
end

local function read_length(der, at)
  local length = der:byte(at)
  if length < 128 then return length, at + 1 end
  local count = length - 128
  return (string.unpack(">I" .. count, der, at + 1)), at + 1 + count
end

-- The content of the DER value at `at`, and the position of the next value.
local function inside(der, at)
  local length, first = read_length(der, at + 1)
  return first, first + length
end

local curves = { ["P-256"] = 32, ["P-384"] = 48, ["P-521"] = 66 }

--- The JWK of a public key.
function tokens.jwk(key, kid)
  local der, kind = der_of(key:pem()), key:kind()
  local jwk = { kid = kid, use = "sig" }
  if kind == "Ed25519" then
    jwk.kty, jwk.crv, jwk.x = "OKP", kind, base64url(der:sub(-32))
  elseif kind == "RSA" then
    local list = inside(der, 1)
    local _, bits = inside(der, list)
    local numbers = inside(der, (inside(der, bits)) + 1)
    local n, after = inside(der, numbers)
    local e, last = inside(der, after)
    jwk.kty, jwk.n, jwk.e = "RSA", base64url((der:sub(n, after - 1):gsub("^\0", ""))), base64url(der:sub(e, last - 1))
  else
    local size = curves[kind]
    jwk.kty, jwk.crv = "EC", kind
    jwk.x, jwk.y = base64url(der:sub(-2 * size, -size - 1)), base64url(der:sub(-size))
  end
  return jwk
end

--- Merges the members of `more` into `to`; json.null removes a member.
function tokens.merge(to, more)
  for name, value in pairs(more or {}) do
    if value == json.null then value = nil end
    to[name] = value
  end
  return to
end

--- The claims of a valid token, changed by `more`; json.null removes a claim.
function tokens.claims(more)
  local now = os.time()
  local claims = {
    iss = tokens.ISSUER, aud = tokens.AUDIENCE, sub = "alice", client_id = "desk", scope = "notes:read notes:write", iat = now, exp = now + 600,
  }
  tokens.merge(claims, more)
  return claims
end

--- Makes a token of these parts.
function tokens.join(header, payload, signature) return base64url(header) .. "." .. base64url(payload) .. "." .. base64url(signature) end

local issuer = {}
issuer.__index = issuer

--- Signs a header and a payload.
function issuer:sign(header, payload)
  local input = base64url(header) .. "." .. base64url(payload)
  return input .. "." .. base64url(assert(self.key:sign(self.algorithm, input)))
end

--- Makes a token: `more` as in tokens.claims, `header` with changes of the header.
function issuer:token(more, header)
  local head = { alg = self.algorithm, typ = "at+jwt", kid = self.kid }
  tokens.merge(head, header)
  return self:sign(json.encode(head), json.encode(tokens.claims(more)))
end

-- RSA keys take long to make: two keys alternate, so that two issuers made in a row have different keys.
local rsa, turn = {}, 0

local function generate(algorithm)
  if not algorithm:find "^[RP]S" then return assert(keys.generate(algorithm)) end
  turn = turn % 2 + 1
  rsa[turn] = rsa[turn] or assert(keys.generate(algorithm))
  return rsa[turn]
end

function tokens.issuer(algorithm, kid)
  local key = generate(algorithm)
  return setmetatable({ key = key, algorithm = algorithm, kid = kid, jwk = tokens.jwk(key, kid), pem = key:pem(), private = key:pem(true) }, issuer)
end

--- A key set as an issuer publishes it.
function tokens.jwks(...)
  local list = json.array {}
  for _, one in ipairs { ... } do list[#list + 1] = one.jwk end
  return json.encode { keys = list }
end

tokens.json, tokens.keys = json, keys
return tokens
