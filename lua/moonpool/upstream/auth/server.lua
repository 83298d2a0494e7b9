-- Requests to authorization servers: their metadata (RFC 8414, OpenID Connect Discovery) and their token endpoints. A
-- URL from the configuration may lead to the addresses that upstreams may have. A URL from metadata must be https and
-- public, or have the issuer's own origin. Redirects are not followed.

local direct = require "moonpool.lib.http.direct"
local host = require "moonpool.host"
local json = require "moonpool.json"

local server = { header_of = direct.header_of }

local METADATA_S <const> = 600            -- seconds for which metadata are used
local MAX_TOKEN_BYTES <const> = 16 << 10
local MAX_LIFE_S <const> = 30 * 86400
local DEFAULT_LIFE_S <const> = 300        -- seconds; for a token whose answer names no lifetime

local outage, refusal = direct.outage, direct.refusal

-- The server refuses a token for one caller.
local function denial(why) return { kind = "denied", why = why } end

-- The JSON of an answer and its status; or nil and a failure.
local function ask(...)
  local answer, failure = direct.ask(...)
  if not answer and failure.is_address then failure.why = failure.why .. " (private: true allows it)" end
  return answer, failure
end

-- -- metadata --------------------------------------------------------------------------------------------------------------

-- The URLs of an issuer's metadata, in the order in which they are tried.
local function places_of(issuer)
  local path = issuer.path:gsub("/+$", "")
  local origin = issuer.url:match "^(%a+://[^/?]+)"
  return { origin .. "/.well-known/oauth-authorization-server" .. path, origin .. "/.well-known/openid-configuration" .. path,
    origin .. path .. "/.well-known/openid-configuration" }
end

-- RFC 8414, 3.3: the issuer that metadata name must be the one that was asked for.
local function is_issuer(said, wanted) return type(said) == "string" and said:gsub("/$", "") == wanted:gsub("/$", "") end

local known = {}                 -- issuer -> { url, reach, methods, ends }

-- The token endpoint that the issuer's metadata name: { url, reach, methods }; or nil and a failure.
local function discover(record, auth)
  local cached = known[record.name .. "\0" .. auth.issuer]
  if cached and host.time.now() < cached.ends then return cached end
  local issuer = host.http.url(auth.issuer)
  if not issuer then return nil, refusal "the issuer is no URL" end
  local tried = {}
  for _, place in ipairs(places_of(issuer)) do
    local found, status
    if not tried[place] then
      tried[place] = true
      found, status = ask("GET", place, direct.configured_reach(issuer, record.is_private), { "accept: application/json" })
      if not found then return nil, status end
    end
    if found and status == 200 then
      if not is_issuer(found.issuer, auth.issuer) then return nil, refusal "the issuer's metadata name another issuer" end
      local url = type(found.token_endpoint) == "string" and host.http.url(found.token_endpoint)
      if not url then return nil, refusal "the issuer's metadata name no token endpoint" end
      local reach = direct.named_reach(url, issuer, record.is_private)
      if not reach then return nil, refusal "the issuer's metadata name a token endpoint without https" end
      local methods = {}
      local list = type(found.token_endpoint_auth_methods_supported) == "table" and found.token_endpoint_auth_methods_supported or {}
      for _, method in ipairs(list) do methods[method] = true end
      local made = { url = url.url, reach = reach, methods = methods, ends = host.time.now() + METADATA_S }
      known[record.name .. "\0" .. auth.issuer] = made
      return made
    end
  end
  return nil, refusal "the issuer has no metadata: token_url names its token endpoint"
end

local function endpoint_of(record, auth)
  if auth.issuer then return discover(record, auth) end
  local url = host.http.url(auth.token_url)
  if not url then return nil, refusal "token_url is no URL" end
  return { url = url.url, reach = direct.configured_reach(url, record.is_private), methods = {} }
end

-- -- tokens ----------------------------------------------------------------------------------------------------------------

-- True if the client's credentials are sent in the body.
local function is_in_body(auth, endpoint)
  if auth.method ~= "auto" then return auth.method == "post" end
  return endpoint.methods.client_secret_post == true and not endpoint.methods.client_secret_basic
end

-- The payload of a token that is a JWT; nil for others.
local function payload_of(token)
  local middle = token:match "^[%w_-]+%.([%w_-]+)%.[%w_-]*$"
  local text = middle and host.base64.decode((middle:gsub("-", "+"):gsub("_", "/") .. ("="):rep(-#middle % 4)))
  local value = text and json.decode(text)
  return type(value) == "table" and value or nil
end

-- True unless the token is a JWT for other audiences.
local function is_for(token, audience)
  local payload = audience and payload_of(token)
  local aud = payload and payload.aud
  if aud == nil or aud == json.null then return true end
  if type(aud) == "string" then return aud == audience end
  for _, one in ipairs(type(aud) == "table" and aud or {}) do
    if one == audience then return true end
  end
  return false
end

-- Errors of RFC 6749 about the gateway as a client: they do not depend on the token that it exchanges.
local about_client = { invalid_client = true, unauthorized_client = true, unsupported_grant_type = true }

-- The text for an error of the server. The server's description is left out, since it may contain secrets that were
-- sent. `refuse`: makes a refusal or a denial.
local function refused(answer, status, refuse)
  local code = type(answer.error) == "string" and answer.error:match "^[%l_]+$"
  local text = ("the token endpoint answers %d%s"):format(status, code and #code <= 40 and " " .. code or "")
  if status == 408 or code == "temporarily_unavailable" or code == "server_error" then return outage(text) end
  return (about_client[code] and refusal or refuse)(text)
end

local ACCESS_TOKEN <const> = "urn:ietf:params:oauth:token-type:access_token"
local JWT <const> = "urn:ietf:params:oauth:token-type:jwt"

-- Describes the fault of an answer that should bring a bearer token for this upstream; nil for a good one.
local function trouble_of(answer, auth)
  local token, kind, issued = answer.access_token, answer.token_type, answer.issued_token_type
  if type(token) ~= "string" or #token > MAX_TOKEN_BYTES or not token:find "^[!-~]+$" then return "the token endpoint gave no token" end
  if kind ~= nil and (type(kind) ~= "string" or kind:lower() ~= "bearer") then return "the token endpoint gave no bearer token" end
  if issued ~= nil and issued ~= ACCESS_TOKEN and issued ~= JWT then return "the token endpoint gave no access token" end
  if not is_for(token, auth.audience or auth.resource) then return "the token endpoint gave a token for another audience" end
end

--- Asks for a token: { text, seconds }; or nil and a failure { kind = "outage" | "barred" | "denied", why, retry_after?
--- }. `subject`: the caller's token, which is exchanged (RFC 8693); nil for the gateway's own.
function server.token(record, subject)
  local auth = record.auth
  local endpoint, failure = endpoint_of(record, auth)
  if not endpoint then return nil, failure end
  local secret, in_body = host.secret.reveal(auth.secret), is_in_body(auth, endpoint)
  local body = direct.form {
    { "grant_type", subject and "urn:ietf:params:oauth:grant-type:token-exchange" or "client_credentials" }, { "subject_token", subject },
    { "subject_token_type", subject and ACCESS_TOKEN }, { "requested_token_type", subject and ACCESS_TOKEN }, { "audience", auth.audience },
    { "resource", auth.resource }, { "scope", auth.scope }, { "client_id", in_body and auth.client }, { "client_secret", in_body and secret },
  }
  local headers = { "accept: application/json", "content-type: application/x-www-form-urlencoded" }
  if not in_body then headers[3] = direct.basic(auth.client, secret) end
  local answer, status = ask("POST", endpoint.url, endpoint.reach, headers, body)
  if not answer then return nil, status end
  local refuse = subject and denial or refusal
  if status ~= 200 then return nil, refused(answer, status, refuse) end
  local trouble = trouble_of(answer, auth)
  if trouble then return nil, refuse(trouble) end
  local life = tonumber(answer.expires_in)
  if not life or life ~= life or life <= 0 then life = DEFAULT_LIFE_S end
  return { text = answer.access_token, seconds = math.min(life, MAX_LIFE_S) }
end

return server
