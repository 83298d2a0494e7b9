-- auth.jwt { issuer =, audience =, … }: whoever brings a token of that issuer, for this server. A function among the options makes
-- the principal of the claims, where `sub`, `scope` or `scp`, `client_id` or `azp` are not what is wanted.

local claims = require "moonpool.auth.claims"
local jwt = require "moonpool.jwt"
local options = require "moonpool.auth.options"
local rules = require "moonpool.jwt.rules"

local names = { 1, table.unpack(rules.names) }

return function(given, script)
  options.check("auth.jwt", given, names)
  local wanted = {}
  for _, name in ipairs(rules.names) do wanted[name] = given[name] end
  if wanted.audience == nil then wanted.audience = script.resource end
  local verifier = jwt.make(wanted, script, "auth.jwt")
  local make = given[1] or claims.principal
  return options.made(given, function(request)
    if not request.bearer then return nil, "there is no token" end
    local found, why, kind = verifier:verify(request.bearer)
    if not found then return nil, why, kind end
    return make(found)
  end)
end
