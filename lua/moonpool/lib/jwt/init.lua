-- The library `jwt` of scripts: verifiers of tokens from an issuer (RFC 7519, RFC 8725). A verifier accepts any value
-- and never raises.
-- Valid tokens are cached, so verifying a token again costs one hash.

local fs = require "moonpool.lib.fs"
local host = require "moonpool.host"
local http = require "moonpool.lib.http"
local json = require "moonpool.json"
local keyset = require "moonpool.lib.jwt.jwks"
local members = require "moonpool.runtime.members"
local recent = require "moonpool.runtime.lru"
local remote = require "moonpool.lib.jwt.remote"
local rules = require "moonpool.lib.jwt.rules"
local token = require "moonpool.lib.jwt.token"
local watched = require "moonpool.runtime.cached_file"
local weak = require "moonpool.runtime.weak"

local jwt = { now = os.time }

local SHARE = 0.25  -- limit of the share of a worker's processor time for signature checks
local BURST = 0.1   -- seconds of that processor time that may be spent at once
local MAX_WAIT_S = 5 -- longest wait, in seconds, for the signature check of a token
local MAX_BAD_TOKENS = 1024

local turn, cost = -math.huge, 0.0001

-- Limits the share of processor time that signature checks take: parks until this check may run. Nil if the wait would
-- be too long.
local function take_turn()
  local now = host.time.now()
  local at = math.max(turn, now - BURST) + cost / SHARE
  if at - now > MAX_WAIT_S then return nil end
  turn = at
  if at > now then host.time.sleep(at - now) end
  return true
end

local function verify(key, algorithm, read)
  local began = host.time.now()
  local fine = key:verify(algorithm, read.input, read.signature)
  cost = cost + (math.min(host.time.now() - began, 0.01) - cost) / 16
  return fine
end

local function open_source(source, made, script)
  if source.find then return source end
  if source.file then
    local file = watched.new(fs.library(script.granted, script.path), script, source.file, keyset.parse)
    return { find = function(_, kid, algorithm)
      local set = file:get()
      if not set then return nil, "the keys cannot be read", "unavailable" end
      local key, why = set:find(kid, algorithm)
      if not key then return nil, why end
      return key, set
    end }
  end
  return remote.new {
    name = (made.plain_http and "plain " or "") .. (source.uri or "issuer " .. source.issuer), uri = source.uri, issuer = source.issuer,
    http = http.library(script.granted, script.path),
    refetch = made.refetch, refresh = made.refresh, max_age = made.max_age, plain_http = made.plain_http,
  }
end

local verifier = members.of_object {}
local states = setmetatable({}, weak.keys)
local verifier_mt = {
  __index = verifier, __metatable = false, __name = "jwt.verifier", __newindex = function() error("a verifier cannot be changed", 2) end,
}

-- Looks a token up in the cache: its record; nil and why for a refused token; or nil if it is not cached.
local function recall(state, id, now)
  local known = state.good:get(id)
  if known then
    if now < known.from or now >= known.till then
      local fine, why = token.check_times(known.times, now, state.rules.leeway)
      if not fine then return nil, why end
    end
    local key, set = state.source:find(known.kid, known.algorithm)
    if key and set == known.set then return known end
    state.good:drop(id)
    return nil
  end
  known = state.bad:get(id)
  if known and known.key == state.source:find(known.kid, known.algorithm) then return nil, known.why end
end

-- Verifies a token that is not cached and returns its record: { payload, times, … }; or nil, why, kind.
local function check(state, text, id, now)
  local read, why = token.read(text, state.rules.algorithms)
  if not read then return nil, why end
  local claims, fine = read.claims
  fine, why = token.check_claims(claims, state.rules)
  if fine then fine, why = token.check_times(claims, now, state.rules.leeway) end
  if not fine then return nil, why end
  local kid, algorithm = read.header.kid, read.header.alg
  local key, set, kind = state.source:find(kid, algorithm)
  if not key then return nil, set, kind end
  if not take_turn() then return nil, "too many tokens wait to be checked", "unavailable" end
  if not verify(key, algorithm, read) then
    state.bad:put(id, { key = key, kid = kid, algorithm = algorithm, why = "the token's signature is not the issuer's" })
    return nil, "the token's signature is not the issuer's"
  end
  local leeway = state.rules.leeway
  local record = {
    from = math.max(claims.nbf or -math.huge, claims.iat or -math.huge) - leeway, till = (claims.exp or math.huge) + leeway,
    payload = read.payload, times = { exp = claims.exp, nbf = claims.nbf, iat = claims.iat }, kid = kid, algorithm = algorithm, set = set,
  }
  if state.rules.cache > 0 then state.good:put(id, record) end
  return record
end

-- The record of a token, the same table while the token is cached; or nil, why, kind.
local function examine(state, text)
  if type(text) ~= "string" or text == "" or #text > token.MAX_BYTES then return nil, select(2, token.read(text, state.rules.algorithms)) end
  local now, id = jwt.now(), host.auth.token_id(text)
  local record, why = recall(state, id, now)
  if record then return record end
  if why then return nil, why end
  return check(state, text, id, now)
end

--- Returns the claims of a valid token, in a new table; or nil, why; or nil, why, "unavailable" if the token could not
--- be judged.
function verifier:verify(text)
  local state = states[self]
  if not state then return nil, "verify is a method: write verifier:verify(token)" end
  local record, why, kind = examine(state, text)
  if not record then return nil, why, kind end
  return (json.decode(record.payload))
end

--- Makes a verifier for the options of a script, { path, granted }. Errors about the options name the function `who`.
function jwt.make(options, script, who)
  local made = rules.read(who, options, script)
  local self = setmetatable({}, verifier_mt)
  states[self] = {
    rules = made, source = open_source(made.source, made, script),
    good = recent.new(math.max(1, made.cache)), bad = recent.new(MAX_BAD_TOKENS),
  }
  return self, made
end

--- For the gateway: returns the record of a token, the same table while the token is cached. Its `payload` is the JSON
--- of the claims.
function jwt.examine(self, text) return examine(states[self], text) end

--- The library of one script file. `granted` is what grants.of(path) gives.
function jwt.library(granted, path)
  local script = { granted = granted, path = path }
  return { verifier = function(options) return (jwt.make(options, script, "jwt.verifier")) end }
end

return jwt
