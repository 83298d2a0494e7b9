-- Parses a URL, host:port or unix:/path of the command line.
local secrets = require "moonpool.workbench.format.secrets"

--- Parses a URL, host:port or unix:/path to { host, port, path, origin, is_secure, unix }; or nil, why, hint.
return function(address)
  local unix = address:match "^unix:(/.*)$"
  if unix then return { unix = unix, host = "localhost", path = "/", origin = "http://localhost" } end
  local is_secure = address:find "^https://" ~= nil
  local authority, path = address:gsub("^https?://", ""):gsub("#.*$", ""):match "^([^/?]+)(.*)$"
  local host, port = (authority or ""):match "^%[([%x:.]+)%]:?(%d*)$"
  if not host then host, port = (authority or ""):match "^([^:]+):?(%d*)$" end
  if not host or address:find "^%a[%w+.-]*://" and not address:find "^https?://" then
    return nil, "not a URL: '" .. secrets.shown_address(address) .. "'", "as in http://127.0.0.1:7300/mcp"
  end
  if host:find "^%d+$" then return nil, "not an address: '" .. address .. "'", "host and port, as in 127.0.0.1:" .. host end
  if host == "0.0.0.0" or host == "::" then host = host == "::" and "::1" or "127.0.0.1" end
  port = port ~= "" and port or is_secure and "443" or "80"
  return {
    host = host, port = port, path = path:gsub("^%f[?\0]", "/"), is_secure = is_secure,
    origin = (is_secure and "https://" or "http://") .. (host:find(":", 1, true) and "[" .. host .. "]" or host) .. ":" .. port,
  }
end
