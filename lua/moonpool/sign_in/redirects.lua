-- Which redirect URIs a client may register, and which of them one of its requests may name (RFC 9700, RFC 8252).

local address = require "moonpool.sign_in.address"

local redirects = {}

local MAX_BYTES <const> = 512

-- Schemes that run something, show something else, or are no way back to a client.
local refused = {}
for scheme in ([[about blob data file filesystem ftp gopher http https javascript jar ldap mailto mhtml resource sms tel
  vbscript view-source ws wss intent android-app chrome chrome-extension]]):gmatch "%S+" do refused[scheme] = true end

local function is_port(text) return text == "" or text:find "^:%d%d?%d?%d?%d?$" ~= nil and tonumber(text:sub(2)) <= 65535 end

-- The port part (may be empty) of an authority of this machine; nil for any other one.
local function near_port(authority)
  local port = authority:match "^localhost(.*)$" or authority:match "^%[::1%](.*)$"
  if not port then
    local a, b, c, rest = authority:match "^127%.(%d+)%.(%d+)%.(%d+)(.*)$"
    for _, part in ipairs { a, b, c } do
      if tonumber(part) > 255 or (#part > 1 and part:sub(1, 1) == "0") then return nil end
    end
    port = rest
  end
  return port and is_port(port) and port or nil
end

-- The same authority in one form: without the scheme's default port, zeros before a port, and the dot of a full name.
local function canonical(scheme, authority)
  local name, port = authority:match "^(.-)%.?:(%d+)$"
  port = tonumber(port)
  if not port then return (authority:gsub("%.$", "")) end
  return port == (scheme == "https" and 443 or 80) and name or name .. ":" .. port
end

-- The parts of a redirect URI: { scheme, authority, rest, port }; nil: it is refused.
local function parts_of(uri)
  if #uri > MAX_BYTES or uri:find "[^\33-\126]" or uri:find "[\\\"<>^`{|}#]" then return nil end
  local lower = uri:lower()
  if lower:gsub("%%2e", "."):find "/%.%.?[/?]" or lower:gsub("%%2e", "."):find "/%.%.?$" or lower:find "%%5c" or lower:find "%%2f" then return nil end
  local scheme, rest = uri:match "^(%a[%w+.-]*):(.+)$"
  if not scheme or scheme ~= scheme:lower() then return nil end
  if scheme ~= "http" and scheme ~= "https" then
    if refused[scheme] or scheme:find "^ms%-" then return nil end
    return { scheme = scheme, rest = rest }
  end
  local authority, path = rest:match "^//([^/?]+)(.*)$"
  if not authority or authority:find "@" or authority ~= authority:lower() then return nil end
  local port = near_port(authority)
  if scheme == "http" then
    if not port then return nil end
    return { scheme = scheme, near = authority:sub(1, #authority - #port), authority = authority, rest = path }
  end
  local name, https_port = authority:match "^([%w.-]+)(:?%d*)$"
  if not name then name, https_port = authority:match "^(%[[%x:.]+%])(:?%d*)$" end
  if not name or not is_port(https_port) then return nil end
  return { scheme = scheme, authority = authority, near = port and name or nil, rest = path }
end

--- True if a client may register the URI. `only_https`: the client is a web application.
function redirects.may_register(uri, only_https)
  local parts = type(uri) == "string" and parts_of(uri)
  if not parts then return false end
  if parts.authority and canonical(parts.scheme, parts.authority) == address.host then return false end
  return not only_https or parts.scheme == "https"
end

--- True if one of the registered URIs is `uri`, byte by byte; on this machine the port may be another one.
function redirects.fits(registered, uri)
  local parts = parts_of(uri)
  if not parts then return false end
  for _, one in ipairs(registered) do
    if one == uri then return true end
    local other = parts.near and parts.scheme == "http" and parts_of(one)
    if other and other.scheme == "http" and other.near == parts.near and other.rest == parts.rest then return true end
  end
  return false
end

--- For people: who gets the code. True as second result: a program on the person's own computer.
function redirects.described(uri)
  local parts = parts_of(uri)
  if parts.near then return "a program on this computer (" .. parts.authority .. ")", true end
  if not parts.authority then return "a program on this computer (" .. parts.scheme .. ":)", true end
  return parts.authority, false
end

return redirects
