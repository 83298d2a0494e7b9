-- auth.introspection { url =, client_id =, client_secret = }: asks the issuer about each token (RFC 7662). Requests
-- with the same token at the same time share one question, and answers are cached.

local base64 = require "moonpool.lib.base64"
local claims = require "moonpool.access.auth.claims"
local flight = require "moonpool.runtime.single_flight"
local host = require "moonpool.host"
local http = require "moonpool.lib.http"
local json = require "moonpool.json"
local options = require "moonpool.access.auth.options"
local problem = require "moonpool.runtime.diagnostic"
local recent = require "moonpool.runtime.lru"
local rules = require "moonpool.lib.jwt.rules"
local token = require "moonpool.lib.jwt.token"
local uris = require "moonpool.runtime.uris"

local TIMEOUT_S, MAX_PAUSE_S, PROBE_S = 5, 30, 1 -- seconds: limit of one request; pause after failures; interval of the single requests during that pause
local MAX_ANSWER_BYTES = 65536
local LEEWAY = 60
local MAX_TOKENS, MAX_BAD_TOKENS = 4096, 1024

local names = { "url", "client_id", "client_secret", "audience", "cache", "negative", "plain_http", "issuer", 1 }

local function seconds(given, name, otherwise, most)
  local value = given[name] == nil and otherwise or given[name]
  if math.type(value) == nil or not (value >= 0 and value <= most) then
    problem.raise(2, ("auth.introspection: '%s' must be 0 to %d seconds"):format(name, most))
  end
  return value
end

-- Messages for HTTP statuses below 500. The first two mean that the issuer refused the gateway's own credentials.
local not_of_token = { [401] = true, [403] = true, [404] = true, [408] = true, [429] = true }

-- Asks the issuer about one token. Returns its claims; false if the token is not active; nil and why if the issuer did
-- not answer.
local function ask(self, text)
  local answer, why = self.http.post(self.url, {
    timeout = TIMEOUT_S, max = math.min(MAX_ANSWER_BYTES, host.limits.http.body), follow = false,
    headers = { accept = "application/json", ["content-type"] = "application/x-www-form-urlencoded", authorization = self.authorization },
    body = "token=" .. uris.escape(text) .. "&token_type_hint=access_token",
  })
  if not answer then return nil, why end
  local status = answer.status
  if status == 401 or status == 403 then
    host.log.write("error", "introspection refused", { url = self.url, status = status, hint = "the issuer refuses 'client_id' and 'client_secret'" })
  end
  if status >= 400 and status < 500 and not not_of_token[status] then return false end
  if status ~= 200 then return nil, "the issuer answers with HTTP status " .. status end
  local said = json.decode(answer.body)
  if type(said) ~= "table" or type(said.active) ~= "boolean" then return nil, "the issuer's answer is not an introspection response" end
  return said.active and said
end

local function note_outage(self, why)
  self.failures = self.failures + 1
  local pause = math.min(MAX_PAUSE_S, 2 ^ (self.failures - 1)) * (0.75 + host.random.bytes(1):byte() / 510)
  self.quiet_until, self.probe_at = host.time.now() + pause, host.time.now() + math.min(pause, PROBE_S)
  host.log.write("warn", "token not introspected", { url = self.url, why = why, again = ("%.1fs"):format(pause), failures = self.failures })
end

-- Checks the answer about an active token: it must be valid now, and for this server.
local function judge(self, said)
  local fine, why = token.check_times(said, os.time(), LEEWAY)
  if fine then fine, why = token.check_claims(said, self.rules) end
  if not fine then return nil, why end
  return said
end

local function fetch(self, id, text)
  local said, why = ask(self, text)
  if said == nil then
    note_outage(self, why)
    return nil
  end
  self.failures, self.quiet_until = 0, -math.huge
  local good = said and judge(self, said)
  if not good then
    self.bad:put(id, host.time.now() + self.negative)
    return false
  end
  local life = math.min(self.cache, said.exp and said.exp + LEEWAY - os.time() or self.cache)
  self.good:put(id, { text = json.encode(good), ends = host.time.now() + life })
  return good
end

-- The claims of a token; or nil, why, kind.
local function look_up(self, text)
  local id, now = host.digest.sum("sha256", text), host.time.now()
  local known = self.good:get(id)
  if known and now < known.ends then return json.decode(known.text) end
  if (self.bad:get(id) or 0) > now then return nil, "the token is not active" end
  if now < self.quiet_until then          -- one request checks whether the issuer answers again
    if now < self.probe_at then return nil, "the issuer does not answer at the moment", "unavailable" end
    self.probe_at = now + TIMEOUT_S
  end
  local said = self.flights:share(id, 2 * TIMEOUT_S, function() return fetch(self, id, text) end)
  if said == nil then return nil, "the issuer does not answer at the moment", "unavailable" end
  if not said then return nil, "the token is not active" end
  return json.decode(json.encode(said)) -- a copy for each request
end

return function(given, script)
  options.check("auth.introspection", given, names)
  local who = "auth.introspection"
  rules.check_reach(who, script, "url", given.url, given.plain_http)
  local secret = options.text(given.client_secret)
  if type(given.client_id) ~= "string" or not secret then
    problem.raise(1, who .. " needs 'client_id' and 'client_secret', the gateway's credentials at the issuer", "as in client_secret = secret \"CLIENT_SECRET\"")
  end
  local audience = given.audience
  if audience == nil then audience = host.config.resources end
  local self = {
    http = http.library(script.granted, script.path), url = given.url,
    authorization = "Basic " .. base64.encode(uris.escape(given.client_id) .. ":" .. uris.escape(secret)),
    cache = seconds(given, "cache", 60, 3600), negative = seconds(given, "negative", 10, 600),
    rules = { issuers = given.issuer and rules.set_of(who, "issuer", given.issuer), audiences = rules.set_of(who, "audience", audience), required = {} },
    good = recent.new(MAX_TOKENS), bad = recent.new(MAX_BAD_TOKENS), flights = flight.new(), quiet_until = -math.huge, probe_at = 0, failures = 0,
  }
  local make = given[1] or claims.principal
  local made = options.made(given, function(request)
    local text = request.bearer
    if not text then return nil, "there is no token" end
    if text == "" or #text > token.MAX_BYTES then return nil, "the token is empty or too long" end
    local said, why, kind = look_up(self, text)
    if not said then return nil, why, kind and options.RETRY end
    local principal, wrong = make(said)
    if type(principal) ~= "table" then return principal, wrong end
    return claims.ending(principal, said.exp and math.ceil(said.exp + LEEWAY))
  end)
  made.issuer = type(given.issuer) == "string" and given.issuer or nil
  return made, nil, true
end
