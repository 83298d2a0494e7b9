-- A provider of identity that people sign in at: OpenID Connect over real sockets, and what each preset of it does
-- otherwise. The browser's visit is a function.
--   local idp <close> = provider.start()                    `people` = name -> claims; `ann` is there
--   local g <close> = idp:gateway { allow = … }             a gateway with sign_in at it
--   local path = idp:visit(location, "ann")                 where the provider sends the browser back
-- A spec may set `metadata`, `id_token`, `userinfo`, `answer` (functions that get and may change what is sent), `hold`
-- (gets the reply of the token endpoint; true: the spec answers), `disabled` (name -> true), `keys`, and read `forms` and
-- `count(path)`.
local base64 = require "spec.helpers.base64"
local cjson = require "cjson.safe"
local signing_in = require "spec.helpers.signing_in"
local stub = require "spec.helpers.stub"
local tokens = require "spec.helpers.tokens"

local provider = { CLIENT = "moonpool-at-idp", SECRET = "s3cret of the gateway" }

local idp = {}
idp.__index = idp

local function parameters(text)
  local found = {}
  for name, value in (text or ""):gmatch "([^&=]+)=([^&]*)" do
    found[name] = value:gsub("+", " "):gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end)
  end
  return found
end
provider.parameters = parameters

local function s256(verifier) return tokens.keys.base64url(tokens.keys.sha256(verifier)) end

function idp:random()
  self.number = self.number + 1
  return ("r%d-%s"):format(self.number, tokens.keys.base64url(tokens.keys.random(16)))
end

--- The number of requests for a path.
function idp:count(path)
  local count = 0
  for _, request in ipairs(self.server.requests) do
    if request.path == path then count = count + 1 end
  end
  return count
end

-- -- the browser -----------------------------------------------------------------------------------------------------------

--- Where the provider sends a browser that `name` signs in with. `more`: parameters of the answer that differ; false
--- leaves one out.
function idp:visit(location, name, more)
  local asked = parameters(location:match "%?(.*)$")
  self.asked = asked
  assert(location:find(self.url .. self.authorize_path, 1, true) == 1, location)
  assert(asked.client_id == provider.CLIENT and asked.response_type == "code", location)
  assert(asked.redirect_uri == signing_in.url .. "/oauth/callback", location)
  assert(asked.code_challenge_method == "S256" and #asked.code_challenge == 43, location)
  local code = self:random()
  self.codes[code] = { name = name, nonce = asked.nonce, challenge = asked.code_challenge, scope = asked.scope }
  local answer = { code = code, state = asked.state, iss = self.names_itself and self.issuer .. (self.answers_as or "") or nil }
  for key, value in pairs(more or {}) do answer[key] = value or nil end
  return "/oauth/callback?" .. signing_in.form(answer)
end

--- The code that a client gets once `name` has signed in, by a browser of its own; or nil and the page instead.
function idp:code(g, client, name, more)
  local browser = signing_in.browser(g)
  local page = browser:send("GET", self:visit(browser:allow(browser:begin(client, more)).headers.location, name or "ann"))
  local code = page.status == 303 and signing_in.returned(page).code
  return code or nil, page, browser
end

--- The answer of the token endpoint of the gateway for a whole sign-in.
function idp:tokens(g, client, name, more) return signing_in.redeem(g, client, (assert(self:code(g, client, name, more)))):json() end

-- -- the server ------------------------------------------------------------------------------------------------------------

local function changed(self, what, value, ...)
  if self[what] then return self[what](value, ...) or value end
  return value
end

local function is_client(request, form)
  local basic = (request.headers.authorization or ""):match "^Basic (.+)$"
  if basic then return base64.decode(basic) == signing_in.escape(provider.CLIENT) .. ":" .. signing_in.escape(provider.SECRET) end
  return form.client_id == provider.CLIENT and form.client_secret == provider.SECRET
end

function idp:id_token_for(name, nonce, access)
  local now = os.time()
  local hash = tokens.keys.sha256(access)
  local claims = { iss = self.issuer, aud = provider.CLIENT, iat = now, exp = now + 300, nonce = nonce, at_hash = tokens.keys.base64url(hash:sub(1, 16)) }
  for key, value in pairs(self.people[name]) do claims[key] = value end
  claims = changed(self, "id_token", claims)
  if type(claims) == "string" then return claims end
  return self.keys[1]:sign(cjson.encode { alg = "ES256", kid = self.keys[1].kid, typ = "JWT" }, cjson.encode(claims))
end

local function give(self, reply, name, nonce)
  local access, refresh = self:random(), not self.is_without_refresh and self:random() or nil
  self.access[access] = name
  if refresh then self.refreshes[refresh] = name end
  self.last = { access = access, refresh = refresh }
  reply:json(changed(self, "answer", { access_token = access, token_type = "Bearer", expires_in = self.life or 3600, refresh_token = refresh,
    id_token = not self.is_plain and self:id_token_for(name, nonce, access) or nil }))
end

local function fail(self, reply, code)
  reply:send(self.error_status or 400, { ["content-type"] = "application/json" }, cjson.encode { error = code, error_description = "hunter2 <script>" })
end

local function answer_token(self, request, reply)
  local form = parameters(request.body)
  self.forms[#self.forms + 1] = form
  if self.hold and self.hold(reply) then return end
  if self.refuse then return reply:send(table.unpack(self.refuse)) end
  if not is_client(request, form) then return fail(self, reply, "invalid_client") end
  if form.grant_type == "authorization_code" then
    local it = self.codes[form.code]
    self.codes[form.code] = nil
    if not it or s256(form.code_verifier) ~= it.challenge then return fail(self, reply, self.bad_grant or "invalid_grant") end
    return give(self, reply, it.name, it.nonce)
  end
  local name = self.refreshes[form.refresh_token]
  self.refreshes[form.refresh_token or ""] = nil          -- single use
  if not name or self.disabled[name] then return fail(self, reply, self.bad_grant or "invalid_grant") end
  give(self, reply, name)
end

local function answer_userinfo(self, request, reply)
  local name = self.access[(request.headers.authorization or ""):match "^Bearer (.+)$"]
  if not name or self.disabled[name] then return reply:send(401) end
  local claims = {}
  for key, value in pairs(self.people[name]) do claims[key] = value end
  for key, value in pairs(self.more and self.more[name] or {}) do claims[key] = value end
  reply:json(changed(self, "userinfo", claims))
end

local function answer_metadata(self, reply)
  reply:json(changed(self, "metadata", { issuer = self.metadata_issuer or self.issuer, authorization_endpoint = self.url .. "/authorize",
    token_endpoint = self.url .. "/token", userinfo_endpoint = self.url .. "/userinfo", jwks_uri = self.url .. "/keys",
    scopes_supported = { "openid", "email", "offline_access" },
    token_endpoint_auth_methods_supported = { "client_secret_basic" },
    authorization_response_iss_parameter_supported = self.names_itself or nil }))
end

local function answer(self, request, reply)
  if self.routes[request.path] then return self.routes[request.path](self, request, reply) end
  if request.path == self.path:gsub("/$", "") .. "/.well-known/openid-configuration" then return answer_metadata(self, reply) end
  if request.path == self.token_path then return answer_token(self, request, reply) end
  if request.path == "/userinfo" then return answer_userinfo(self, request, reply) end
  if request.path == "/keys" then return reply:send(200, { ["content-type"] = "application/json" }, tokens.jwks(table.unpack(self.keys))) end
  reply:send(404)
end

--- The body of a request to the API of this provider with a person's token: her name, or nil after 401.
function idp:caller(request, reply)
  local name = self.access[(request.headers.authorization or ""):match "^Bearer (.+)$"]
  if name and not self.disabled[name] then return name end
  reply:send(401)
end

function idp:__close() self.server:__close() end

--- `more`: members of the provider that differ; `path`: of its issuer; `routes`: path -> function(idp, request, reply).
function provider.start(more)
  local self = setmetatable({ people = { ann = { sub = "1001", email = "ann@example.com", email_verified = true }, bob = { sub = "1002" } }, number = 0,
    codes = {}, access = {}, refreshes = {}, disabled = {}, forms = {}, routes = {}, path = "", authorize_path = "/authorize", token_path = "/token",
    name = "oidc", keys = { tokens.issuer("ES256", "k1") } }, idp)
  for key, value in pairs(more or {}) do self[key] = value end
  self.server = stub.start(function(request, reply) answer(self, request, reply) end)
  self.url = self.server.url
  self.issuer = self.url .. self.path
  return self
end

--- A gateway whose people sign in at this provider. `sign_in`: further keys of that section, false leaves one out;
--- `config`: of the configuration.
function idp:gateway(sign_in, config, options)
  local section = { provider = self.name, issuer = self.issuer, client = provider.CLIENT, secret = provider.SECRET, scopes = { "notes:read", "notes:write" } }
  for key, value in pairs(sign_in or {}) do
    section[key] = value
    if value == false then section[key] = nil end
  end
  local whole = { sign_in = section }
  for key, value in pairs(config or {}) do whole[key] = value end
  options = options or {}
  local constants = { http_idle_ms = 5 }
  for key, value in pairs(options.constants or {}) do constants[key] = value end
  options.constants = constants
  return signing_in.start(whole, options)
end

return provider
