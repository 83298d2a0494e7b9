-- The library `uri` of scripts (RFC 3986): parses, builds and resolves URIs, and percent-encodes texts.

local problem = require "moonpool.runtime.diagnostic"
local sorted = require "moonpool.runtime.sorted_keys"
local uris = require "moonpool.runtime.uris"

local uri = {}

local function check(what, text)
  if type(text) ~= "string" then problem.raise(3, what .. " takes a string, not a " .. type(text)) end
end

local function unescape(hex) return string.char(tonumber(hex, 16)) end

local encode = uris.escape

--- encode(text): percent-encodes a text for any part of a URI; '/' and '&' are encoded, too.
function uri.encode(text)
  if type(text) == "number" then text = tostring(text) end
  check("uri.encode", text)
  return encode(text)
end

local function decode(text)
  if text:gsub("%%%x%x", ""):find("%", 1, true) then return nil end
  return (text:gsub("%%(%x%x)", unescape))
end

--- decode(text): reverses encode; or nil, why.
function uri.decode(text)
  check("uri.decode", text)
  local decoded = decode(text)
  if not decoded then return nil, "a '%' without two hexadecimal digits" end
  return decoded
end

local function authority_of(parts)
  local rest = parts.authority
  local user, after = rest:match "^(.*)@(.*)$"
  if user then parts.userinfo, rest = user, after end
  local host, port = rest:match "^(%[[%x:.]+%]):?(%d*)$"
  if not host then host, port = rest:match "^([^:%[%]]*):?(%d*)$" end
  if not host then return false end
  parts.host, parts.port = host:lower(), math.tointeger(port)
  return not parts.port or parts.port <= 65535
end

--- parse(text): { scheme, userinfo, host, port, path, query, fragment }; absent parts are nil; or nil, why.
function uri.parse(text)
  check("uri.parse", text)
  if text:find "[%c%s\"<>\\^`{|}]" then return nil, "a character that is not allowed in a URI" end
  if text:gsub("%%%x%x", ""):find("%", 1, true) then return nil, "a '%' without two hexadecimal digits" end
  local parts = uris.split(text)
  if parts.scheme then parts.scheme = parts.scheme:lower() end
  if parts.authority and not authority_of(parts) then return nil, "the text between '//' and '/' is not a host with a port" end
  parts.authority = nil
  return parts
end

--- query(fields): "a=1&b=x%20y", sorted by name; a value that is a list repeats its name.  query(text): parses such a text.
function uri.query(fields)
  if type(fields) == "table" then
    local out = {}
    for name in pairs(fields) do
      if type(name) ~= "string" then problem.raise(2, "a field of uri.query has no name", "as in { page = 2 }") end
    end
    for _, name in ipairs(sorted(fields)) do
      local values = fields[name]
      for _, value in ipairs(type(values) == "table" and values or { values }) do out[#out + 1] = encode(name) .. "=" .. encode(tostring(value)) end
    end
    return table.concat(out, "&")
  end
  check("uri.query", fields)
  local made = {}
  for pair in fields:gmatch "[^&]+" do
    local name, value = pair:match "^([^=]*)=?(.*)$"
    name, value = decode((name:gsub("+", " "))), decode((value:gsub("+", " ")))
    if not name or not value then return nil, "a '%' without two hexadecimal digits" end
    made[name] = value
  end
  return made
end

--- build(parts): reverses parse; `query` may be a table.
function uri.build(parts)
  if type(parts) ~= "table" then problem.raise(2, "uri.build takes a table, not a " .. type(parts)) end
  local authority
  if parts.host then
    authority = (parts.userinfo and parts.userinfo .. "@" or "") .. parts.host .. (parts.port and ":" .. parts.port or "")
  end
  local path = parts.path or ""
  if authority and path ~= "" and path:sub(1, 1) ~= "/" then path = "/" .. path end
  return uris.whole {
    scheme = parts.scheme, authority = authority, path = path, fragment = parts.fragment,
    query = type(parts.query) == "table" and uri.query(parts.query) or parts.query,
  }
end

--- join(base, other): resolves the URI reference `other` against `base`; or nil, why.
function uri.join(base, other)
  check("uri.join", base)
  check("uri.join", other)
  if not uris.split(base).scheme then return nil, "the first URI has no scheme" end
  return uris.join(base, other)
end

return uri
