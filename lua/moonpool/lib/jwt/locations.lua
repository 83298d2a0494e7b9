-- The URLs of an issuer's metadata, and the check that a URL is safe to fetch keys from.

local host = require "moonpool.host"

local locations = {}

local here = { localhost = true, ["127.0.0.1"] = true, ["::1"] = true }

--- Checks that keys may be fetched from `url`: https, or the local machine. Returns the parts of the URL; or nil, why.
function locations.check(url, plain_http)
  if type(url) ~= "string" then return nil, "a URL is needed, not a " .. type(url) end
  local parts, why = host.http.url(url)
  if not parts then return nil, why end
  if parts.scheme ~= "https" and not (parts.scheme == "http" and (plain_http or here[parts.host])) then
    return nil, "the URL is not https"
  end
  return parts
end

--- The URLs at which an issuer's metadata may be, in the order in which clients try them (A-15).
function locations.metadata(issuer)
  local origin, path = issuer:match "^(%a+://[^/]+)(.*)$"
  path = path:gsub("/+$", "")
  local list = { origin .. "/.well-known/oauth-authorization-server" .. path, origin .. "/.well-known/openid-configuration" .. path }
  if path ~= "" then list[3] = origin .. path .. "/.well-known/openid-configuration" end
  return list
end

return locations
