-- auth.jwt { issuer =, audience =, … }: whoever brings a token of that issuer, for this server. A function among the options makes
-- the principal of the claims, where `sub`, `scope` or `scp`, `client_id` or `azp` are not what is wanted.

local auth = require "moonpool.auth"
local claims = require "moonpool.auth.claims"
local host = require "moonpool.host"
local json = require "moonpool.json"
local jwt = require "moonpool.jwt"
local options = require "moonpool.auth.options"
local rules = require "moonpool.jwt.rules"

local names = { 1, table.unpack(rules.names) }

-- What is made of a token is made once: as long as it is remembered the same table is given.
local function principal_of(record, make, leeway)
  if record.principal then return record.principal end
  local made, why = make(json.decode(record.payload))
  if type(made) ~= "table" then return made, why end
  record.principal = auth.keep(claims.ending(made, math.ceil(record.times.exp + leeway)))
  return record.principal
end

return function(given, script)
  options.check("auth.jwt", given, names)
  local wanted = {}
  for _, name in ipairs(rules.names) do wanted[name] = given[name] end
  if wanted.audience == nil then wanted.audience = host.resources end
  local verifier, read = jwt.make(wanted, script, "auth.jwt")
  local make = given[1] or claims.principal
  local made = options.made(given, function(request)
    local text = request.bearer
    if not text then return nil, "there is no token" end
    local record, why, kind = jwt.examine(verifier, text)
    if not record then return nil, why, kind and options.RETRY end
    return principal_of(record, make, read.leeway)
  end)
  made.issuer = not read.source.find and not read.source.file and read.issuer or nil -- whose metadata clients can read
  return made, true
end
