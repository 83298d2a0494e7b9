-- An issuer over HTTP: its metadata and keys, which a spec changes, delays and breaks.
--   local idp <close> = issuer.start(one, two)           keys of tokens.issuer
--   idp.url; idp:fetches(); idp.answer = function(request, reply, body) … end; idp.metadata = function(issuer) … end
local stub = require "spec.helpers.stub"
local tokens = require "spec.helpers.tokens"

local issuer = {}

local idp = {}
idp.__index = idp

--- Replaces the keys of the issuer.
function idp:publish(...) self.body = tokens.jwks(...) end

--- The number of requests for the issuer's keys.
function idp:fetches()
  local count = 0
  for _, request in ipairs(self.server.requests) do
    if request.path:sub(1, 5) == "/keys" then count = count + 1 end
  end
  return count
end

--- A token signed with one of the issuer's keys.
function idp:token(key, more, header)
  return key:token(tokens.merge({ iss = self.url }, more), header)
end

function idp:__close() self.server:__close() end

function issuer.start(...)
  local self = setmetatable({}, idp)
  self:publish(...)
  self.server = stub.start(function(request, reply)
    local tenant = request.path:match "^/%.well%-known/openid%-configuration(.*)$"
    if tenant then
      return reply:json(self.metadata and self.metadata(self.url .. tenant) or { issuer = self.url .. tenant, jwks_uri = self.url .. "/keys" })
    end
    if request.path:sub(1, 5) ~= "/keys" then return reply:send(404) end
    if self.answer then return self.answer(request, reply, self.body) end
    reply:send(200, { ["content-type"] = "application/json" }, self.body)
  end)
  self.url, self.at = self.server.url, self.server.at
  return self
end

return issuer
