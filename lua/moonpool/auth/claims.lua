-- From the claims of a token, or what an introspection says of it, to a principal (RFC 9068, RFC 7662).

local options = require "moonpool.auth.options"
local principal = require "moonpool.principal"

local claims = {}

local DEEPEST = 12

local function is_flat(value, depth)
  if type(value) ~= "table" then return true end
  if depth > DEEPEST then return false end
  for _, inner in pairs(value) do
    if not is_flat(inner, depth + 1) then return false end
  end
  return true
end

local function text_of(value)
  if value == nil then return nil end
  return options.is_id(value) and value or false
end

--- What a script's function made of claims, ending at `expires` unless it says when: a copy, since the script may give the same
--- table for every token of somebody.
function claims.ending(made, expires)
  if principal.is(made) then
    error("the function made a principal that is one already: it gives a table, as in { id = claims.sub }", 0)
  end
  local copy = {}
  for name, value in pairs(made) do copy[name] = value end
  copy.expires = copy.expires or expires
  return copy
end

--- A table for auth{…}; or nil, why.
function claims.principal(from)
  local subject, client = text_of(from.sub), text_of(from.client_id or from.azp)
  if subject == false or client == false then return nil, "it names somebody in a way that is not taken" end
  if not subject and not client then return nil, "it names nobody: it has neither 'sub' nor 'client_id'" end
  local scopes, why = options.read_scopes(from.scope or from.scp)
  if not scopes then return nil, why end
  if not is_flat(from, 1) then return nil, "its claims are nested too deeply" end
  local issuer = text_of(from.iss)
  if issuer == false then return nil, "it names its issuer in a way that is not taken" end
  return {
    id = subject or "client:" .. client, scopes = scopes, claims = from, issuer = issuer, subject = subject, client = client,
  }
end

return claims
