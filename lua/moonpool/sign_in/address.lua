-- The addresses of the authorization server, which clients see: all begin with public_url, never with a Host header.
--   issuer     public_url and endpoints.prefix: the name of the authorization server
--   resource   the URL of an MCP endpoint; all of them are one resource with several transports

local host = require "moonpool.host"
local keys = require "moonpool.keys"

local address = {}

local config = host.config.sign_in
local prefix = config.prefix or ""

address.issuer = config.public_url .. prefix
address.origin = config.public_url:lower()
address.is_https = address.origin:find("https://", 1, true) == 1

--- The name of the host in public_url, with its port.
address.host = address.origin:match "^https?://(.*)$"
address.is_near = address.host:find "^localhost:?%d*$" ~= nil or address.host:find "^127%.[%d.]+:?%d*$" ~= nil
  or address.host:find "^%[::1%]:?%d*$" ~= nil

--- The path that a browser asks for.
function address.path(rest) return prefix .. rest end

--- The path of a request as the gateway knows it: a proxy may or may not remove the prefix.
function address.own_path(path)
  return prefix ~= "" and path:sub(1, #prefix) == prefix and path:sub(#prefix + 1) or path, path
end

-- The URL with scheme and host in lower case, without a default port and without a slash at its end.
local function normal(url)
  local scheme, authority, path = url:match "^(%a+)://([^/?#]*)([^?#]*)$"
  if not scheme then return nil end
  scheme, authority = scheme:lower(), authority:lower()
  local default = scheme == "https" and ":443" or ":80"
  if authority:sub(-#default) == default then authority = authority:sub(1, -#default - 1) end
  return scheme .. "://" .. authority .. (path:gsub("/$", ""))
end

local known = {}
for _, url in ipairs(host.config.resources) do known[normal(url)] = true end

--- The resource that a client means: nil if it is none of this gateway. Without one it is the first endpoint.
function address.resource(url)
  if url ~= nil and not (normal(url) and known[normal(url)]) then return nil end
  return host.config.resources[1]
end

local function short_hash(text) return (keys.base64url(keys.sha256(text)):sub(1, 8):gsub("[-_]", "x")) end

--- The name of the browser's cookie: of two gateways behind one host, or on two ports of it, each has its own.
address.cookie = (address.is_https and "__Host-moonpool-" or "moonpool-") .. short_hash(address.issuer)

return address
