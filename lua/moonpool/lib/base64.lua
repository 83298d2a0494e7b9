-- `base64` of scripts (RFC 4648): the usual alphabet with padding, and the one for URLs without.

local host = require "moonpool.host"
local problem = require "moonpool.problem"

local base64 = {}

local function check(what, text)
  if type(text) ~= "string" then problem.raise(3, what .. " takes a text, not a " .. type(text)) end
end

function base64.encode(bytes)
  check("base64.encode", bytes)
  return host.base64(bytes)
end

--- The bytes; or nil, why.
function base64.decode(text)
  check("base64.decode", text)
  local bytes = host.unbase64(text)
  if not bytes then return nil, "this is not Base64" end
  return bytes
end

function base64.url_encode(bytes)
  check("base64.url_encode", bytes)
  return (host.base64(bytes):gsub("[+/=]", { ["+"] = "-", ["/"] = "_", ["="] = "" }))
end

function base64.url_decode(text)
  check("base64.url_decode", text)
  local usual = not text:find "[+/]" and text:gsub("=*$", ""):gsub("[-_]", { ["-"] = "+", ["_"] = "/" })
  local bytes = usual and host.unbase64(usual .. ("="):rep(-#usual % 4))
  if not bytes then return nil, "this is not Base64 for URLs" end
  return bytes
end

return base64
