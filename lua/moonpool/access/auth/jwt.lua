-- auth.jwt { issuer =, audience =, … }: authenticates requests with a token of that issuer for this server. A function
-- among the options makes the principal from the claims, for claims other than `sub`, `scope` or `scp`, `client_id` or
-- `azp`.

local auth = require "moonpool.access.auth"
local claims = require "moonpool.access.auth.claims"
local host = require "moonpool.host"
local json = require "moonpool.json"
local jwt = require "moonpool.lib.jwt"
local options = require "moonpool.access.auth.options"
local rules = require "moonpool.lib.jwt.rules"

local names = { 1, table.unpack(rules.names) }

-- The principal of a token, and the seconds for which it is valid; or nil and why. Without a function of the script,
-- the principal of a token is made once. With one, the function is called again after auth.KNOWN seconds, since it may
-- look up facts that change.
local function principal_of(record, make, leeway)
  local known, left = record.known, auth.KNOWN -- `known` is replaced in one step: other requests with this token may run in between
  if known and make ~= claims.principal then left = known.asked_again_at - host.time.now() end
  if known and left > 0 then return known.principal, left end
  record.known = nil
  local asked_at = host.time.now()
  local made, why = make(json.decode(record.payload))
  if type(made) ~= "table" then return made, why end
  known = { principal = auth.keep(claims.ending(made, math.ceil(record.times.exp + leeway))), asked_again_at = asked_at + auth.KNOWN }
  record.known = known
  return known.principal, known.asked_again_at - host.time.now()
end

return function(given, script)
  options.check("auth.jwt", given, names)
  local wanted = {}
  for _, name in ipairs(rules.names) do wanted[name] = given[name] end
  if wanted.audience == nil then wanted.audience = host.config.resources end
  local verifier, read = jwt.make(wanted, script, "auth.jwt")
  local make = given[1] or claims.principal
  local made = options.made(given, function(request)
    local text = request.bearer
    if not text then return nil, "there is no token" end
    local record, why, kind = jwt.examine(verifier, text)
    if not record then return nil, why, kind and options.RETRY end
    return principal_of(record, make, read.leeway)
  end)
  made.issuer = not read.source.find and not read.source.file and read.issuer or nil -- clients can read the metadata of this issuer
  return made, true, true
end
