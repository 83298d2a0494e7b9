-- Public keys of an issuer, from a JWK Set (RFC 7517) or PEM. Keys that are not for signatures or not supported are
-- skipped.

local has = require "moonpool.runtime.has"
local json = require "moonpool.json"
local keys = require "moonpool.keys"

local keyset = {}
keyset.__index = keyset

local MAX_KEYS = 100
local MAX_KID_BYTES = 256

-- For each kind of key: its members in base64url, and a function that makes the key of them.
local kinds = {
  RSA = { members = { "n", "e" }, make = function(_, n, e) return keys.rsa(n:gsub("^\0+", ""), (e:gsub("^\0+", ""))) end },
  EC = { members = { "x", "y" }, make = function(jwk, x, y) return keys.ec(jwk.crv, x, y) end },
  OKP = { members = { "x" }, make = function(_, x) return keys.ed25519(x) end },
}

-- Makes the key of a JWK; or nil, why.
local function make_key(jwk)
  local kind, values = kinds[jwk.kty], {}
  if not kind then return nil, "the key's 'kty' is not supported: RSA, EC and OKP are" end
  if jwk.kty == "EC" and type(jwk.crv) ~= "string" then return nil, "the key names no curve" end
  if jwk.kty == "OKP" and jwk.crv ~= "Ed25519" then return nil, "the key's curve is not supported: only Ed25519 is" end
  for i, name in ipairs(kind.members) do
    values[i] = type(jwk[name]) == "string" and keys.unbase64url(jwk[name])
    if not values[i] or values[i] == "" then return nil, "the key's '" .. name .. "' is not base64url" end
  end
  return kind.make(jwk, table.unpack(values))
end

-- Reads one JWK to { key, kid, algorithm }; or nil and the reason to skip it.
local function read(jwk)
  if type(jwk) ~= "table" or getmetatable(jwk) == json.array_mt then return nil, "the key is not an object" end
  if jwk.d ~= nil or jwk.k ~= nil then return nil, "the key is a secret, not a public key" end
  if jwk.use ~= nil and jwk.use ~= "sig" then return nil, "the key is not for signatures" end
  if jwk.key_ops ~= nil and not (type(jwk.key_ops) == "table" and has(jwk.key_ops, "verify")) then return nil, "the key's 'key_ops' lack verify" end
  if jwk.kid ~= nil and not (type(jwk.kid) == "string" and #jwk.kid <= MAX_KID_BYTES) then return nil, "the key's 'kid' is not a short text" end
  local key, why = make_key(jwk)
  if not key then return nil, why end
  if jwk.alg ~= nil and not (type(jwk.alg) == "string" and key:suits(jwk.alg)) then return nil, "the key's 'alg' does not fit its kind" end
  return { key = key, kid = jwk.kid, algorithm = jwk.alg }
end

local function add(set, entry)
  set.list[#set.list + 1] = entry
  if entry.kid then
    set.by_kid[entry.kid] = set.by_kid[entry.kid] or {}
    table.insert(set.by_kid[entry.kid], entry)
  end
end

local function empty() return setmetatable({ list = {}, by_kid = {}, found = {} }, keyset) end

--- Reads the set of keys from a decoded JWK Set; or nil, why.
function keyset.from_jwks(document)
  local list = type(document) == "table" and document.keys
  if type(document) == "table" and document.kty ~= nil then list = { document } end
  if type(list) ~= "table" then return nil, "the key set has no list 'keys'" end
  if #list > MAX_KEYS then return nil, "the key set has more than " .. MAX_KEYS .. " keys" end
  local set, first = empty(), nil
  for i, jwk in ipairs(list) do
    local entry, why = read(jwk)
    if entry then
      add(set, entry)
    else
      first = first or "key " .. i .. ": " .. why
    end
  end
  if #set.list == 0 then return nil, "no key of the set can verify signatures" .. (first and " (" .. first .. ")" or "") end
  return set
end

--- Reads the set of keys from PEM texts: a list, or { kid = text }; or nil, why.
function keyset.from_pems(texts)
  local set = empty()
  for name, text in pairs(texts) do
    if type(text) ~= "string" then return nil, "a key must be a PEM text, not a " .. type(text) end
    local key, why = keys.public(text)
    if not key then return nil, why end
    add(set, { key = key, kid = type(name) == "string" and name or nil })
  end
  if #set.list == 0 then return nil, "the list of keys is empty" end
  return set
end

--- Reads the set of keys from the JSON of a JWK Set; or nil, why.
function keyset.from_json(text)
  local document, why = json.decode(text)
  if document == nil then return nil, "the key set is not JSON: " .. tostring(why) end
  return keyset.from_jwks(document)
end

--- Reads the set of keys from a text, the JSON of a JWK Set or PEM; or nil, why.
function keyset.parse(text)
  if text:find "^%s*{" then return keyset.from_json(text) end
  return keyset.from_pems { text }
end

local function suits(entry, algorithm) return (entry.algorithm or algorithm) == algorithm and entry.key:suits(algorithm) end

local function only(list, algorithm)
  local found
  for _, entry in ipairs(list) do
    if suits(entry, algorithm) then
      if found then return nil, true end
      found = entry.key
    end
  end
  return found
end

--- The one key for a token that names `kid` (or nil) and this algorithm; or nil, why, and true if a newer set of keys
--- may have it.
function keyset:find(kid, algorithm)
  local found = kid and self.found[kid]
  if found and found.algorithm == algorithm then return found.key end
  local list = kid and self.by_kid[kid]
  if kid and not list then
    -- A token that names a `kid` may use a key without `kid` only if that is the one candidate.
    list = next(self.by_kid) == nil and self.list or nil
    if not list then return nil, "the token is signed with a key that the issuer does not have", true end
  end
  local key, is_open = only(list or self.list, algorithm)
  if key then
    if kid and self.by_kid[kid] then self.found[kid] = { key = key, algorithm = algorithm } end      -- a key set never changes
    return key
  end
  if is_open then return nil, "the token does not name the issuer's key that signed it" end
  return nil, "no key of the issuer fits the token's algorithm", kid == nil
end

return keyset
