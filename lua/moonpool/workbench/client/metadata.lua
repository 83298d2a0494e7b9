-- Looks at a server's metadata of a protected resource (RFC 9728), which describe its authorization. Only GET requests
-- without credentials are sent, to the origin of the server.

local json = require "moonpool.json"
local wire = require "moonpool.wire"

local PATIENCE_S <const> = 10
local MAX_DOCUMENT_BYTES <const> = 256 << 10
local WELL_KNOWN <const> = "/.well-known/oauth-protected-resource"

local function texts_of(list)
  local made = {}
  for i, one in ipairs(type(list) == "table" and list or {}) do
    if i <= 8 and type(one) == "string" then made[#made + 1] = one end
  end
  return made
end

-- The document at an address; nil if there is none. Some servers answer every path with an event stream, which has no
-- end: its first byte is none of an object.
local function document_at(url, ca)
  local text = ""
  local function take(bytes)
    text = text .. bytes
    if #text > MAX_DOCUMENT_BYTES or text:find "^%s*[^%s{]" then error "no document" end
  end
  local is_whole, status = pcall(wire.fetch, { method = "GET", url = url, ca = ca, seconds = PATIENCE_S, on_bytes = take })
  local value = is_whole and status == 200 and json.decode(text)
  return type(value) == "table" and value.resource ~= nil and value or nil
end

-- The URLs at which the metadata may be, in the order in which clients look: the one that the challenge names, then the
-- two of the standard.
local function addresses(place, challenge)
  local list = {}
  local named = challenge and challenge:match 'resource_metadata="([^"]*)"'
  if named and named:sub(1, #place.origin) == place.origin or named and named:sub(1, #place.short) == place.short then list[1] = named end
  local path = place.path:gsub("%?.*$", "")
  if path ~= "/" then list[#list + 1] = place.origin .. WELL_KNOWN .. path end
  list[#list + 1] = place.origin .. WELL_KNOWN
  return list, named and not list[1]:find(named, 1, true) and named or nil
end

local function same(resource, place)
  local path = place.path:gsub("%?.*$", ""):gsub("/$", "")
  resource = resource:gsub("/$", "")
  return resource == place.origin .. path or resource == place.short .. path
end

--- The state of the step, its text, and perhaps a hint. `challenge`: the header WWW-Authenticate of a refused request,
--- or nil.
return function(place, ca, challenge)
  -- the origin as people write it: without the default port
  local port = place.is_secure and ":443" or ":80"
  place.short = place.origin:sub(-#port) == port and place.origin:sub(1, -#port - 1) or place.origin
  local list, elsewhere = addresses(place, challenge)
  for _, url in ipairs(list) do
    local found = document_at(url, ca)
    if found then
      local servers, scopes = texts_of(found.authorization_servers), texts_of(found.scopes_supported)
      local text = (servers[1] and "tokens are from " .. table.concat(servers, ", ") or "no authorization server is named")
        .. (scopes[1] and "; scopes: " .. table.concat(scopes, " ") or "")
      if type(found.resource) ~= "string" or not same(found.resource, place) then
        return "doubt", text .. "; it describes another resource: " .. tostring(found.resource), "clients refuse such metadata: use the URL that it names"
      end
      return servers[1] and "ok" or "doubt", text
    end
  end
  if elsewhere then return "doubt", "its metadata is at another origin, which is not asked: " .. elsewhere end
  return "ok", challenge and "the server does not describe where tokens come from" or "the server describes none"
end
