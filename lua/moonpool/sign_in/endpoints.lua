-- The endpoints that clients call: registration (RFC 7591), tokens (RFC 6749), revocation (RFC 7009). Pages of every
-- origin may read their answers; none of them looks at a cookie.

local address = require "moonpool.sign_in.address"
local authorize = require "moonpool.sign_in.authorize"
local clients = require "moonpool.sign_in.clients"
local families = require "moonpool.sign_in.families"
local form = require "moonpool.sign_in.form"
local host = require "moonpool.host"
local json = require "moonpool.json"
local people = require "moonpool.sign_in.people"
local records = require "moonpool.sign_in.records"
local scopes = require "moonpool.sign_in.scopes"
local tokens = require "moonpool.sign_in.tokens"

local endpoints = {}

-- Registrations in a minute, of one address and of all: they cost a few hash functions, and store nothing.
local REGISTRATIONS <const>, ALL_REGISTRATIONS <const> = 60, 6000
local BAD_GRANT <const> = "the code or refresh token is not valid, or is not this client's"

--- An answer in JSON that pages of every origin may read. `more`: further headers.
function endpoints.answer(status, value, more)
  return { status = status, type = "application/json", body = json.encode(value),
    headers = { "access-control-allow-origin", "*", "cache-control", "no-store", table.unpack(more or {}) } }
end

local function fault(status, code, why, reason)
  local more = status == 401 and { "www-authenticate", 'Basic realm="moonpool"' } or nil
  local answer = endpoints.answer(status, { error = code, error_description = why }, more)
  answer.event, answer.reason = reason and "sign-in refused" or nil, reason
  return answer
end

-- The parameters of the form and the client that sent it; or nil and the answer.
local function read(request)
  if not form.is_in(request) then
    return nil, fault(400, "invalid_request", "the body is a form: application/x-www-form-urlencoded")
  end
  local parameters, why = form.parse(request.body)
  if not parameters then return nil, fault(400, "invalid_request", why) end
  local client, wrong, is_away = clients.authenticate(request, parameters)
  if is_away then return nil, fault(503, "temporarily_unavailable", wrong, wrong) end
  if not client then return nil, fault(401, "invalid_client", wrong, wrong) end
  return parameters, client
end

-- -- registration -------------------------------------------------------------------------------------------------------

-- Takes one registration: nil if there is one left, else the seconds until there is.
local function wait_of_registration(from)
  for _, rate in ipairs { { "visitor l:registrations " .. host.http.counted(from or ""), REGISTRATIONS }, { "l:registrations", ALL_REGISTRATIONS } } do
    local is_free, wait = host.store.take(rate[1], 60 / rate[2], rate[2])
    if is_free ~= true then return type(wait) == "number" and wait or 1 end
  end
end

function endpoints.register(request)
  if form.media_type(request) ~= "application/json" then return fault(400, "invalid_client_metadata", "the body is JSON: application/json") end
  local wait = wait_of_registration(request.address)
  if wait then
    return endpoints.answer(429, { error = "temporarily_unavailable", error_description = "too many registrations" },
      { "retry-after", tostring(math.max(1, math.ceil(wait))) })
  end
  local ok, metadata = pcall(json.decode, request.body)
  if not ok or type(metadata) ~= "table" then return fault(400, "invalid_client_metadata", "the body is not a JSON object") end
  for name, value in pairs(metadata) do
    if value == json.null then metadata[name] = nil end
  end
  local answer, code, why = clients.register(metadata)
  return answer and endpoints.answer(201, answer) or fault(400, code, why)
end

-- -- tokens -------------------------------------------------------------------------------------------------------------

local function pair(id, family, granted, refresh)
  local access, seconds = tokens.make(id, family, granted)
  return endpoints.answer(200, { access_token = access, token_type = "Bearer", expires_in = seconds, refresh_token = refresh,
    scope = granted[1] and table.concat(granted, " ") or nil })
end

local function by_code(parameters, client)
  local code = parameters.code
  if not code or not parameters.redirect_uri then return fault(400, "invalid_request", "code and redirect_uri are needed") end
  local grant, text = families.find_code(code)
  if not grant then return fault(400, "invalid_grant", BAD_GRANT) end
  local is_right = grant.client == client.key and grant.redirect == parameters.redirect_uri
    and authorize.is_verifier(parameters.code_verifier, grant.challenge)
  if grant.family then        -- it was used: whoever has the verifier, too, is the client or has all that it has
    if is_right then families.finish(grant.family) end
    return fault(400, "invalid_grant", BAD_GRANT, is_right and "a code was used twice: its sign-in ends" or "a used code, without what belongs to it")
  end
  if not is_right then
    families.drop_code(code)
    return fault(400, "invalid_grant", BAD_GRANT, "a code with another client, redirect or verifier: it ends")
  end
  if parameters.resource and address.resource(parameters.resource) ~= grant.resource then
    return fault(400, "invalid_target", "the resource is not the one of the sign-in")
  end
  records.ready()
  local id, family, refresh, has_ended_one = families.begin(code, grant, text, client.name or grant.name)
  if not id then
    local used = families.find_code(code)
    if used and used.family then families.finish(used.family) end
    return fault(400, "invalid_grant", BAD_GRANT, "a code was used twice: its sign-in ends")
  end
  if not families.is_settled(id) then return fault(400, "invalid_grant", BAD_GRANT) end
  local answer = pair(id, family, family.scopes, refresh)
  if has_ended_one then answer.event, answer.reason = "signed out", "too many sign-ins: the one that was unused longest ends; user=" .. family.user end
  return answer
end

-- The scopes that a refresh asks for; nil: they are not all granted.
local function narrowed(family, text)
  local asked = scopes.asked(text)
  local list, is_whole = scopes.granted(asked or nil, family.scopes)
  return asked ~= false and is_whole and list or nil
end

local function by_refresh(parameters, client)
  local token = parameters.refresh_token
  if not token then return fault(400, "invalid_request", "refresh_token is needed") end
  records.ready()
  for _ = 1, 8 do
    local family, id, text = families.of(token)
    if not family or family.client ~= client.key then return fault(400, "invalid_grant", BAD_GRANT) end
    local wanted = narrowed(family, parameters.scope)
    if not wanted then return fault(400, "invalid_scope", "more scopes than were granted") end
    if parameters.resource and address.resource(parameters.resource) ~= family.resource then
      return fault(400, "invalid_target", "the resource is not the one of the sign-in")
    end
    local mark, gone, is_unknown, own = people.still_may(family.user, family.mark)
    if is_unknown then return fault(503, "temporarily_unavailable", "users cannot be looked up now") end
    if not mark then
      families.finish(id)
      return fault(400, "invalid_grant", BAD_GRANT, gone)
    end
    family.mark = mark
    local rotated, refresh = families.rotate(token, family, id, text)
    if rotated then
      return families.is_settled(id) and pair(id, rotated, people.scopes((scopes.granted(wanted, own))), refresh) or fault(400, "invalid_grant", BAD_GRANT)
    elseif refresh == "reused" then
      families.finish(id)
      return fault(400, "invalid_grant", BAD_GRANT, "a refresh token was used again: its sign-in ends; user=" .. family.user)
    end
  end
  return fault(503, "temporarily_unavailable", "too many refreshes at once")
end

function endpoints.token(request)
  local parameters, client = read(request)
  if not parameters then return client end
  if parameters.grant_type == "authorization_code" then return by_code(parameters, client) end
  if parameters.grant_type == "refresh_token" then return by_refresh(parameters, client) end
  return fault(400, parameters.grant_type and "unsupported_grant_type" or "invalid_request", "grant_type is authorization_code or refresh_token")
end

-- -- revocation ---------------------------------------------------------------------------------------------------------

function endpoints.revoke(request)
  local parameters, client = read(request)
  if not parameters then return client end
  local token = parameters.token
  if not token then return fault(400, "invalid_request", "token is needed") end
  local family, id = families.of(token)
  local owner = family and family.client
  if not family then id, owner = tokens.family(token) end
  local answer = { status = 200, body = "", headers = { "access-control-allow-origin", "*", "cache-control", "no-store" } }
  if id and owner == client.key then
    families.finish(id)
    answer.event, answer.reason = "signed out", "client=" .. client.key
  end
  return answer
end

return endpoints
