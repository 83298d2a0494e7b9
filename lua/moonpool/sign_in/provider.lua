-- The provider that knows the people (sign_in.provider): where its endpoints are, and what it says of a person. The
-- gateway is its client, and asks it with PKCE, state and nonce.
--   place     { url, reach }: an endpoint, and the addresses that it may lead to
--   failure   { kind, why }: "outage" it does not answer now; "barred" an operator has to change something; "gone" it
--             has ended what the person gave; "unasked" nothing is left to ask it with; "false" its answer is not true;
--             "other" it speaks of another person

local address = require "moonpool.sign_in.address"
local direct = require "moonpool.lib.http.direct"
local flight = require "moonpool.runtime.single_flight"
local form = require "moonpool.sign_in.form"
local has = require "moonpool.runtime.has"
local host = require "moonpool.host"
local json = require "moonpool.json"
local jwt = require "moonpool.lib.jwt"
local keys = require "moonpool.keys"
local lru = require "moonpool.runtime.lru"
local presets = require "moonpool.sign_in.presets"
local without_nulls = require "moonpool.runtime.without_nulls"

local provider = {}

local TIMEOUT_S <const> = 4                  -- of one request
local AT_ONCE <const>, WAITING <const> = 32, 32          -- so that none waits for longer than one other request takes
local METADATA_S <const>, STALE_S <const> = 600, 86400
local PAUSE_S <const>, MOST_PAUSE_S <const> = 5, 60      -- after no answer; and what Retry-After may say
local KEEP_S <const> = 2                                 -- for what follows an answer: a new refresh token is on the disk
local MAX_PLACES <const> = 64
local MAX_TOKEN_BYTES <const> = 16 << 10
local MAX_CLAIMS_BYTES <const> = 32 << 10

local config = host.config.sign_in
local preset = presets.of(config.provider)

provider.name, provider.preset = config.provider, preset

--- The name of the provider, under which its people are known.
provider.issuer = config.issuer or preset.issuer or config.authorize_url:match "^(%a+://[^/?]+)"

provider.redirect = address.issuer .. "/oauth/callback"

local function bad(why) return { kind = "false", why = why } end
local function other(why) return { kind = "other", why = why } end

-- -- requests --------------------------------------------------------------------------------------------------------------

local pauses = lru.new(MAX_PLACES)           -- URL -> { ends, failure }: it is not asked before that

-- The failure that a place had a moment ago; nil: it may be asked.
local function paused(url)
  local pause = pauses:get(url)
  return pause and host.time.now() < pause.ends and pause.failure or nil
end

-- Asks a place. Whoever waits for a turn while a place does not answer gets that failure, too. `ends`: the time by which
-- the answer has to be kept.
local function ask(method, place, headers, body, ends)
  local failure = paused(place.url)
  if failure then return nil, failure end
  local turn <close> = host.semaphore.take("sign_in provider", AT_ONCE, false, WAITING)
  if not turn then return nil, direct.outage "too many requests to the provider at once" end
  failure = paused(place.url)
  if failure then return nil, failure end
  if ends and host.time.now() > ends - TIMEOUT_S - KEEP_S then return nil, direct.outage "the provider takes too long" end
  table.move({ "accept: application/json", "user-agent: moonpool" }, 1, 2, #headers + 1, headers)
  local value, status, head = direct.ask(method, place.url, place.reach, headers, body, TIMEOUT_S)
  local seconds = not value and (status.is_silent and PAUSE_S or status.retry_after)
  if seconds then pauses:put(place.url, { ends = host.time.now() + math.min(seconds, MOST_PAUSE_S), failure = status }) end
  return value, status, head
end

-- Asks with an access token. 401: the provider does not take it any more.
local function ask_with(url, reach, access)
  local value, status = ask("GET", { url = url, reach = reach }, { "authorization: Bearer " .. access })
  if not value then return nil, status end
  if status == 401 then return nil, { kind = "gone", why = "the provider refuses the person's access token" } end
  return value, status
end

-- -- metadata --------------------------------------------------------------------------------------------------------------

local issuer = host.http.url(provider.issuer)

-- The place of a URL that the metadata name; nil: they name none that may be used. An address or a name of this machine
-- would be a grant for it.
local function place_of(text)
  local url = type(text) == "string" and host.http.url(text)
  local reach = url and direct.named_reach(url, issuer, true)
  if reach == "public" and (host.http.address(url.host) or ("." .. url.host):find "%.localhost%.?$") then return nil end
  return reach and { url = url.url, reach = reach, at = url } or nil
end

local function is_issuer(said) return said == provider.issuer or preset.template ~= nil and type(said) == "string" and said:find "{tenantid}" ~= nil end

-- Whether a list in the metadata, if it is one, has a word.
local function names(list, word) return type(list) == "table" and has(list, word) end

-- Whether a secret goes into the body of a request.
local function is_in_body(methods)
  return names(methods, "client_secret_post") and not names(methods, "client_secret_basic")
end

local function read_metadata(found)
  if not is_issuer(found.issuer) then
    local said = tostring(found.issuer):sub(1, 200)
    return nil, direct.refusal(("the provider's metadata name the issuer %q: sign_in.issuer has to be the same, byte for byte"):format(said))
  end
  if preset.template and found.issuer:find "{tenantid}" and not config.allow.tenants then
    return nil, direct.refusal "sign_in.issuer is that of the people of all tenants: sign_in.allow.tenants has to say of which"
  end
  local made = { issuer = found.issuer, authorize = place_of(found.authorization_endpoint), token = place_of(found.token_endpoint),
    user = not preset.is_alone and place_of(found.userinfo_endpoint) or nil, jwks = place_of(found.jwks_uri),
    in_body = is_in_body(found.token_endpoint_auth_methods_supported), is_offline = names(found.scopes_supported, "offline_access"),
    names_itself = found.authorization_response_iss_parameter_supported == true }
  for _, name in ipairs { "authorize", "token", "jwks" } do
    if not made[name] then
      return nil, direct.refusal("the provider's metadata name no endpoint that is https and public, or of the issuer's own origin: " .. name)
    end
  end
  return made
end

local function discover()
  local origin, path = issuer.url:match "^(%a+://[^/?]+)([^?]*)"
  path = path:gsub("/+$", "")
  local status
  for _, url in ipairs { origin .. path .. "/.well-known/openid-configuration", origin .. "/.well-known/oauth-authorization-server" .. path } do
    local found
    found, status = ask("GET", { url = url, reach = direct.configured_reach(issuer, true) }, {})
    if not found then return nil, status end
    if status == 200 then return read_metadata(found) end
  end
  return nil, direct.outage(("the provider answers %d to the question for its metadata"):format(status))
end

local known, known_at, asked_at, last_failure = nil, -math.huge, -math.huge, nil
local flights = flight.new()

local function configured()
  local made, at = { issuer = provider.issuer, in_body = preset.in_body }, preset.endpoints(provider.issuer)
  made.answers_as = preset.answers_as and preset.answers_as(provider.issuer)
  for name, text in pairs(at) do
    local url = host.http.url(text)
    made[name] = { url = text, reach = direct.configured_reach(url, true), at = url }
  end
  return made
end

--- The provider's endpoints: { issuer, authorize, token, user?, jwks? } and what it can; or nil and a failure. They are
--- read again after ten minutes, and used for a day while that is not possible.
function provider.metadata()
  if preset.endpoints then
    known = known or configured()
    return known
  end
  local now = host.time.now()
  if known and now - known_at < METADATA_S or now - asked_at < PAUSE_S then return known, last_failure end
  local found, failure = flights:share("metadata", 2 * TIMEOUT_S, discover)
  asked_at = host.time.now()
  if found then
    known, known_at, last_failure = found, asked_at, nil
  else
    last_failure = type(failure) == "table" and failure or direct.outage "the provider does not answer"
    host.log.write("warn", "sign-in not possible", { why = last_failure.why, hint = "sign_in.issuer is " .. provider.issuer })
    if asked_at - known_at > STALE_S then known = nil end
  end
  return known, last_failure
end

-- -- to the provider -------------------------------------------------------------------------------------------------------

local function scopes_to_ask(meta)
  local list = {}
  for _, text in ipairs(config.ask or preset.ask) do list[#list + 1] = text end
  if not config.ask then
    if config.allow.groups and preset.groups_ask then list[#list + 1] = preset.groups_ask end
    if meta.is_offline then list[#list + 1] = "offline_access" end
  end
  return list[1] and table.concat(list, " ") or nil
end

--- The address at the provider for a browser. `flow`: { nonce, verifier, is_again }, `state`: as the provider sends it back.
function provider.authorize_url(meta, state, flow)
  local extra, again = preset.extra or {}, flow.is_again and preset.again or {}
  return form.with(meta.authorize.url, { n = 20, "response_type", "code", "client_id", config.client, "redirect_uri", provider.redirect,
    "scope", scopes_to_ask(meta), "state", state, "nonce", not preset.identity and flow.nonce or nil,
    "code_challenge", keys.base64url(host.digest.sum("sha256", flow.verifier)), "code_challenge_method", "S256",
    extra[1] or "", extra[2], again[1] or "", again[2] })
end

-- -- tokens ----------------------------------------------------------------------------------------------------------------

-- Errors that mean that the provider has ended what the person gave (RFC 6749, and GitHub's).
local endings = { invalid_grant = true, bad_refresh_token = true, bad_verification_code = true }

local function is_token(value) return type(value) == "string" and #value <= MAX_TOKEN_BYTES and value:find "^[!-~]+$" ~= nil end

-- The tokens of an answer, { access, refresh?, id_token?, ends? }; or nil and a failure.
local function read_tokens(answer, status)
  local code = type(answer.error) == "string" and answer.error:sub(1, 40):match "^[%w_]+$"
  if code and endings[code] then return nil, { kind = "gone", why = "the provider answers " .. code } end
  if code == "temporarily_unavailable" or code == "server_error" then return nil, direct.outage("the provider answers " .. code) end
  if code then return nil, direct.refusal("the provider answers " .. code) end
  if status ~= 200 then return nil, direct.outage(("the provider's token endpoint answers %d"):format(status)) end
  local kind = answer.token_type
  if not is_token(answer.access_token) then return nil, bad "the provider gave no access token" end
  if kind ~= nil and (type(kind) ~= "string" or kind:lower() ~= "bearer") then return nil, bad "the provider gave a token that is no bearer token" end
  local life = tonumber(answer.expires_in)
  return { access = answer.access_token, refresh = is_token(answer.refresh_token) and answer.refresh_token or nil,
    id_token = presets.text(answer.id_token), ends = life and life > 0 and life < 1e9 and os.time() + life // 1 | 0 or nil }
end

local function tokens_by(meta, fields, ends)
  local headers = { "content-type: application/x-www-form-urlencoded" }
  if config.secret and not meta.in_body then
    headers[2] = direct.basic(config.client, config.secret)
  else
    fields[#fields + 1] = { "client_id", config.client }
    fields[#fields + 1] = { "client_secret", config.secret }
  end
  local answer, status = ask("POST", meta.token, headers, direct.form(fields), ends)
  if not answer then return nil, status end
  return read_tokens(answer, status)
end

-- -- ID tokens -------------------------------------------------------------------------------------------------------------

local verifier, verifier_of

-- The verifier of the provider's tokens. Its keys are fetched from their place alone.
local function verifier_for(meta)
  local of = meta.issuer .. " " .. meta.jwks.url
  if verifier_of == of then return verifier end
  local at, reach = meta.jwks.at, meta.jwks.reach
  local name = at.host:find(":", 1, true) and "[" .. at.host .. "]" or at.host
  local grant = name .. ":" .. at.port .. (reach == "private" and " private" or "")
  local issuers = { meta.issuer }
  for _, one in ipairs(preset.issuers or {}) do issuers[#issuers + 1] = one end
  verifier = jwt.make({ issuer = not preset.template and issuers, audience = config.client, jwks = meta.jwks.url, required = { "sub", "iat" }, cache = 0,
    plain_http = at.scheme == "http" or nil }, { granted = { net = { grant }, read = {}, write = {} }, path = "sign_in" }, "sign_in")
  verifier_of = of
  return verifier
end

local digests = { ["256"] = "sha256", ["384"] = "sha384", ["512"] = "sha512" }

-- True if at_hash, where it is there, is that of the access token (OpenID Connect Core, 3.1.3.6).
local function is_hash(claim, algorithm, access)
  if claim == nil then return true end
  local hash = host.digest.sum(digests[algorithm:sub(-3)] or "sha512", access)
  return type(claim) == "string" and keys.equal(claim, keys.base64url(hash:sub(1, #hash // 2)))
end

-- The claims of an ID token that is true; or nil and a failure. `nonce`: nil after a refresh.
local function read_id_token(meta, tokens, nonce)
  local record, why, kind = jwt.examine(verifier_for(meta), tokens.id_token)
  if not record then return nil, kind and direct.outage(why) or bad("the ID token: " .. why) end
  local claims = without_nulls(json.decode(record.payload))
  if preset.template and claims.iss ~= preset.template(meta.issuer, claims) then return nil, bad "the ID token is from another issuer" end
  if claims.azp ~= config.client and (claims.azp ~= nil or type(claims.aud) == "table" and #claims.aud > 1) then
    return nil, bad "the ID token is for another client"
  end
  if nonce and claims.nonce ~= nonce then return nil, bad "the ID token has another nonce" end
  if not is_hash(claims.at_hash, record.algorithm, tokens.access) then return nil, bad "the ID token belongs to another access token" end
  return claims
end

-- -- claims ----------------------------------------------------------------------------------------------------------------

local function lacks(claims)
  local allow = config.allow
  return allow.emails and not preset.email(claims) or allow.groups and not preset.groups(claims) or allow.roles and not preset.roles(claims)
end

-- The claims, with those of userinfo that they lack. Whether an address is verified is said of that address alone.
local function filled(claims, more)
  without_nulls(more)
  if claims.email == nil then claims.email_verified = nil elseif claims.email ~= more.email then more.email_verified = nil end
  for name, value in pairs(more) do
    if claims[name] == nil then claims[name] = value end
  end
  return claims
end

local function ask_user(meta, tokens, claims)
  local found, status = ask_with(meta.user.url, meta.user.reach, tokens.access)
  if not found then return nil, status end
  if status ~= 200 then return nil, direct.outage(("the provider's userinfo answers %d"):format(status)) end
  if found.sub ~= claims.sub then return nil, other "userinfo is about another person" end
  return found
end

local function bounded(claims)
  if #json.encode(claims) > MAX_CLAIMS_BYTES then return nil, bad(("the claims take more than %d bytes"):format(MAX_CLAIMS_BYTES)) end
  return claims
end

-- The failure of a question with an access token. The provider has given a new one just now, so it has not ended anything:
-- the endpoint refuses it for reasons of its own.
local function of_new_access(failure) return failure.kind == "gone" and direct.outage(failure.why) or failure end

-- What the provider says of the person whose tokens these are. `is_new`: they come from a refresh just now. `before`: the
-- claims that are known of her already, or nil.
local function claims_of(meta, tokens, nonce, before, is_new)
  if preset.identity then
    local claims, failure = preset.identity(ask_with, meta, tokens.access)
    if not claims then return nil, is_new and of_new_access(failure) or failure end
    if before and claims.sub ~= before.sub then return nil, other "the tokens are another person's" end
    return bounded(without_nulls(claims))
  end
  local claims, failure
  if before and not tokens.id_token and not meta.user then return nil, { kind = "unasked", why = "the provider says nothing of the person" } end
  if tokens.id_token then
    claims, failure = read_id_token(meta, tokens, nonce)
    if not claims then return nil, failure end
    if before and (claims.sub ~= before.sub or preset.template and claims.iss ~= before.iss) then
      return nil, other "the ID token is another person's"
    end
  elseif not before then
    return nil, bad "the provider gave no ID token: openid has to be among sign_in.ask"
  end
  if meta.user and (before or lacks(claims)) then
    local found
    found, failure = ask_user(meta, tokens, claims or before)
    if failure and is_new then failure = of_new_access(failure) end
    if not found and (not claims or failure.kind ~= "outage" or lacks(claims)) then return nil, failure end
    claims = filled(claims or { iss = before.iss }, found or {})
  end
  return bounded(claims)
end

--- Redeems a code of the provider: the person's claims, and { access, refresh?, ends? }; or nil and a failure.
function provider.redeem(meta, code, flow)
  local tokens, failure = tokens_by(meta, { { "grant_type", "authorization_code" }, { "code", code }, { "redirect_uri", provider.redirect },
    { "code_verifier", flow.verifier } })
  if not tokens then return nil, failure end
  local claims, wrong = claims_of(meta, tokens, flow.nonce)
  if not claims then return nil, wrong end
  return claims, tokens
end

--- Asks the provider about a person whom it has named before: her claims now; or nil and a failure. `tokens` are those
--- of hers; `keep(tokens)` is called with new ones before they are used. `ends`: the time at which the task ends: a refresh
--- token that it could not keep any more is not used up.
function provider.ask_again(tokens, before, keep, ends)
  local meta, failure = provider.metadata()
  if not meta then return nil, failure end
  local is_new = tokens.refresh ~= nil
  if is_new then
    local found
    found, failure = tokens_by(meta, { { "grant_type", "refresh_token" }, { "refresh_token", tokens.refresh } }, ends)
    if not found then return nil, failure end
    found.refresh = found.refresh or tokens.refresh
    keep(found)
    tokens = found
  elseif not tokens.access or tokens.ends and tokens.ends <= os.time() or not (preset.identity or meta.user) then
    return nil, { kind = "unasked", why = "the provider gave no refresh token" }
  end
  return claims_of(meta, tokens, nil, before, is_new)
end

return provider
