-- auth.bearer { secret =, id =, scopes = }: authenticates requests that send the secret as `Authorization: Bearer …`.

local auth = require "moonpool.access.auth"
local host = require "moonpool.host"
local keys = require "moonpool.keys"
local options = require "moonpool.access.auth.options"
local problem = require "moonpool.runtime.diagnostic"

local MIN_SECRET_LENGTH = 16

return function(given)
  options.check("auth.bearer", given, { "secret", "id", "scopes" })
  local text = options.text(given.secret)
  if not text then
    problem.raise(1, "auth.bearer needs 'secret', a string", "as in secret = secret \"API_TOKEN\"; nil means that the variable is not set, or not granted")
  end
  if #text < MIN_SECRET_LENGTH then
    problem.raise(1, "auth.bearer: the secret is shorter than " .. MIN_SECRET_LENGTH .. " characters", "openssl rand -hex 32 makes one")
  end
  if not options.is_id(given.id or "bearer") then problem.raise(1, "auth.bearer: 'id' is the id of the principal with this secret") end
  local hash = host.digest.sum("sha256", text)
  local who = auth.keep { id = given.id or "bearer", scopes = options.scopes("auth.bearer", given.scopes) }
  return options.made(given, function(request)
    if not request.bearer then return nil, "there is no token" end
    if not keys.equal(host.digest.sum("sha256", request.bearer), hash) then return nil, "the token is not known" end
    return who
  end), true
end
