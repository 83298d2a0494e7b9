-- Parses tokens and checks their form and claims (RFC 7515, RFC 7519, RFC 9068). Keys, certificates and URLs in a
-- token's header are ignored.

local json = require "moonpool.json"
local keys = require "moonpool.keys"

local token = {}

token.MAX_BYTES = 16384

local MAX_HEADER_BYTES = 2048
local MAX_KID_BYTES = 256
local LATEST = 1 << 53

local types = { jwt = true, ["at+jwt"] = true, ["application/jwt"] = true, ["application/at+jwt"] = true }

local function object(text, what)
  local ok, value = pcall(json.decode, text)
  if not ok or type(value) ~= "table" or getmetatable(value) == json.array_mt then return nil, "the token's " .. what .. " is not a JSON object" end
  return value
end

local function check_header(header, algorithms)
  local alg, typ = header.alg, header.typ
  if type(alg) ~= "string" then return nil, "the token names no algorithm" end
  if not algorithms[alg] then return nil, "the token's algorithm is not accepted" end
  if header.crit ~= nil then return nil, "the token has a critical header that is not supported" end
  if header.b64 ~= nil then return nil, "the token's payload is not encoded" end
  if typ ~= nil and not (type(typ) == "string" and types[typ:lower()]) then return nil, "the token's 'typ' is not accepted" end
  if header.cty ~= nil then return nil, "the token contains another token" end
  if header.kid ~= nil and not (type(header.kid) == "string" and #header.kid <= MAX_KID_BYTES) then return nil, "the token's 'kid' is not a short text" end
  return true
end

--- Splits a token into its parts: { header, payload (its JSON), claims, signature, input }; or nil, why.
function token.read(text, algorithms)
  if text == nil or text == "" then return nil, "there is no token" end
  if type(text) ~= "string" then return nil, "a token must be a string, not a " .. type(text) end
  if #text > token.MAX_BYTES then return nil, "the token is too long" end
  local head, payload, signature, input = keys.split(text)
  if not head then return nil, payload end
  if #head > MAX_HEADER_BYTES then return nil, "the token's header is too long" end
  local header, why = object(head, "header")
  if not header then return nil, why end
  local fine
  fine, why = check_header(header, algorithms)
  if not fine then return nil, why end
  local claims
  claims, why = object(payload, "payload")
  if not claims then return nil, why end
  return { header = header, payload = payload, claims = claims, signature = signature, input = input }
end

local function is_time(value) return math.type(value) ~= nil and value > -LATEST and value < LATEST end

--- Checks `exp`, `nbf` and `iat` against the time `now`. True; or nil, why.
function token.check_times(claims, now, leeway)
  local exp, nbf, iat = claims.exp, claims.nbf, claims.iat
  if exp ~= nil and not is_time(exp) then return nil, "the token's 'exp' is not a number of seconds since 1970" end
  if nbf ~= nil and not is_time(nbf) then return nil, "the token's 'nbf' is not a number of seconds since 1970" end
  if iat ~= nil and not is_time(iat) then return nil, "the token's 'iat' is not a number of seconds since 1970" end
  if exp and now >= exp + leeway then return nil, "the token has expired" end
  if nbf and now < nbf - leeway then return nil, "the token is not valid yet" end
  if iat and now < iat - leeway then return nil, "the token was issued in the future" end
  return true
end

local function names(aud, wanted)
  if type(aud) == "string" then return wanted[aud] end
  if type(aud) ~= "table" or getmetatable(aud) ~= json.array_mt then return nil end
  local found = false
  for _, value in ipairs(aud) do
    if type(value) ~= "string" then return nil end
    found = found or wanted[value]
  end
  return found
end

--- Checks issuer, audience and required claims by `rules`: { issuers, audiences (sets, or false), required }. True; or
--- nil, why.
function token.check_claims(claims, rules)
  if rules.issuers and not (type(claims.iss) == "string" and rules.issuers[claims.iss]) then return nil, "the token is from another issuer" end
  if claims.iss ~= nil and type(claims.iss) ~= "string" then return nil, "the token's 'iss' is not a string" end
  if rules.audiences and not names(claims.aud, rules.audiences) then return nil, "the token is for another audience" end
  for _, name in ipairs(rules.required) do
    if claims[name] == nil or claims[name] == json.null then return nil, "the token has no '" .. name .. "'" end
  end
  for _, name in ipairs { "sub", "client_id", "azp", "jti" } do
    local value = claims[name]
    if value ~= nil and (type(value) ~= "string" or value == "") then return nil, "the token's '" .. name .. "' is not a text" end
  end
  return true
end

return token
