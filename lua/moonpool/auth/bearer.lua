-- auth.bearer { secret =, id =, scopes = }: whoever knows the one secret, sent as `Authorization: Bearer …`.

local auth = require "moonpool.auth"
local host = require "moonpool.host"
local keys = require "moonpool.keys"
local options = require "moonpool.auth.options"
local problem = require "moonpool.problem"

local SHORTEST = 16

return function(given)
  options.check("auth.bearer", given, { "secret", "id", "scopes" })
  local text = options.text(given.secret)
  if not text then
    problem.raise(1, "auth.bearer needs 'secret', a text", "as in secret = secret \"API_TOKEN\", which gives nil for a variable that is not set or not granted")
  end
  if #text < SHORTEST then problem.raise(1, "auth.bearer: the secret is shorter than " .. SHORTEST .. " characters", "openssl rand -hex 32 makes one") end
  if not options.is_id(given.id or "bearer") then problem.raise(1, "auth.bearer: 'id' is a name for who knows the secret") end
  local hash = host.digest("sha256", text)
  local who = auth.keep { id = given.id or "bearer", scopes = options.scopes("auth.bearer", given.scopes) }
  return options.made(given, function(request)
    if not request.bearer then return nil, "there is no token" end
    if not keys.equal(host.digest("sha256", request.bearer), hash) then return nil, "the token is not known" end
    return who
  end), true
end
