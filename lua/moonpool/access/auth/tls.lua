-- auth.tls { clients = { { subject = | san = | fingerprint =, issuer =, id =, scopes = }, … } }: authenticates clients
-- by their certificates.
-- The listener has verified that the certificate was issued by `client_ca`.

local has = require "moonpool.runtime.has"
local options = require "moonpool.access.auth.options"
local problem = require "moonpool.runtime.diagnostic"

local function plain(fingerprint) return (tostring(fingerprint):lower():gsub("^sha256:", ""):gsub("[^%x]", "")) end

local function read(one)
  if type(one) ~= "table" then problem.raise(2, "auth.tls: a client must be a table", "as in { subject = \"CN=ci\", id = \"robot:ci\", scopes = { … } }") end
  if one.issuer ~= nil and type(one.issuer) ~= "string" then problem.raise(2, "auth.tls: 'issuer' of a client must be a string, as in \"CN=Our CA\"") end
  local ways = 0
  for _, name in ipairs { "subject", "san", "fingerprint" } do
    if one[name] ~= nil and (type(one[name]) ~= "string" or one[name] == "") then
      problem.raise(2, "auth.tls: '" .. name .. "' of a client must be a string") end
    ways = ways + (one[name] and 1 or 0)
  end
  if ways == 0 then problem.raise(2, "auth.tls: a client needs 'subject', 'san' or 'fingerprint'") end
  if not options.is_id(one.id) then problem.raise(2, "auth.tls: a client needs an 'id'") end
  if one.san and not one.san:find "^%u+:." then
    problem.raise(2, "auth.tls: a 'san' must begin with its kind", "as in san = \"DNS:ci.example.com\"; other kinds are URI:, EMAIL: and IP:")
  end
  if one.fingerprint and #plain(one.fingerprint) ~= 64 then problem.raise(2, "auth.tls: 'fingerprint' must be a SHA-256: 64 hexadecimal digits") end
  return {
    subject = one.subject, issuer = one.issuer, san = one.san, fingerprint = one.fingerprint and plain(one.fingerprint),
    id = one.id, scopes = options.scopes("auth.tls", one.scopes),
  }
end

-- True if the certificate has everything that the entry names.
local function is(one, tls)
  return (not one.subject or one.subject == tls.subject) and (not one.san or has(tls.sans, one.san))
    and (not one.issuer or one.issuer == tls.issuer) and (not one.fingerprint or one.fingerprint == plain(tls.fingerprint))
end

return function(given)
  options.check("auth.tls", given, { "clients" })
  if type(given.clients) ~= "table" or #given.clients == 0 then problem.raise(1, "auth.tls needs 'clients', a list") end
  local clients = {}
  for i, one in ipairs(given.clients) do clients[i] = read(one) end
  return options.made(given, function(request)
    local tls = request.tls
    if not tls or not tls.fingerprint then return nil, "there is no client certificate" end
    for _, one in ipairs(clients) do
      if is(one, tls) then return { id = one.id, scopes = one.scopes, expires = tls.expires } end
    end
    return nil, "the client's certificate is not known"
  end)
end
