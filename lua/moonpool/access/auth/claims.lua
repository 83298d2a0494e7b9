-- Makes a principal from the claims of a token, or from the answer of an introspection (RFC 9068, RFC 7662).

local json = require "moonpool.json"
local options = require "moonpool.access.auth.options"
local principal = require "moonpool.access.principal"

local claims = {}

local MAX_DEPTH = 12

local function is_flat(value, depth)
  if type(value) ~= "table" then return true end
  if depth > MAX_DEPTH then return false end
  for _, inner in pairs(value) do
    if not is_flat(inner, depth + 1) then return false end
  end
  return true
end

local function text_of(value)
  if value == nil then return nil end
  return options.is_id(value) and value or false
end

--- Copies the table that a script's function made of claims, since the script may return the same table for every
--- token. The principal expires at `expires` unless the script sets a time.
function claims.ending(made, expires)
  if principal.is(made) then
    error("the function returned a principal, and must return a table, as in { id = claims.sub }", 0)
  end
  local copy = {}
  for name, value in pairs(made) do copy[name] = value end
  copy.expires = copy.expires or expires
  return copy
end

--- The table for auth{…}; or nil and why.
function claims.principal(from)
  local subject, client = text_of(from.sub), text_of(from.client_id or from.azp)
  local is_taken = subject and not options.is_given_id(subject)
  if subject == false or client == false or is_taken then return nil, "the token's 'sub' or 'client_id' is not a valid id" end
  if not subject and not client then return nil, "the token has neither 'sub' nor 'client_id'" end
  local given = from.scope == nil and from.scp or from.scope
  if type(given) == "table" and debug.getmetatable(given) ~= json.array_mt then
    return nil, "the token's scopes are a JSON object, not a string or list"
  end
  local scopes, why = options.read_scopes(given)
  if not scopes then return nil, why end
  if not is_flat(from, 1) then return nil, "the token's claims are nested too deeply" end
  local issuer = text_of(from.iss)
  if issuer == false then return nil, "the token's 'iss' is not a valid text" end
  return {
    id = subject or "client:" .. client, scopes = scopes, claims = from, issuer = issuer, subject = subject, client = client,
  }
end

return claims
