-- The library `digest` of scripts: hash functions. The result is in hexadecimal digits, or in bytes if the last
-- argument is "bytes".

local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"

local digest = {}

local MAX_INPUT_BYTES = 16 * 1024 * 1024
local kinds = { sha256 = true, sha512 = true, sha1 = true, md5 = true }

local function check(what, bytes, form)
  if type(bytes) ~= "string" then problem.raise(3, what .. " takes a string, not a " .. type(bytes)) end
  if #bytes > MAX_INPUT_BYTES then problem.raise(3, what .. " takes at most 16 MiB at once") end
  if form ~= nil and form ~= "bytes" and form ~= "hex" then problem.raise(3, what .. " returns \"hex\" or \"bytes\", not " .. tostring(form)) end
end

local function shown(bytes, form)
  if form == "bytes" then return bytes end
  return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

for kind in pairs(kinds) do
  digest[kind] = function(bytes, form)
    check("digest." .. kind, bytes, form)
    return shown(host.digest.sum(kind, bytes), form)
  end
end

--- hmac(kind, key, bytes [, form])
function digest.hmac(kind, key, bytes, form)
  if not kinds[kind] then problem.raise(2, "digest.hmac takes \"sha256\", \"sha512\", \"sha1\" or \"md5\" first, not " .. tostring(kind)) end
  check("digest.hmac", key)
  check("digest.hmac", bytes, form)
  return shown(host.digest.hmac(kind, key, bytes), form)
end

--- equal(a, b): true if two strings are equal, in constant time, so an attacker cannot measure where they differ.
function digest.equal(a, b)
  if type(a) ~= "string" or type(b) ~= "string" then problem.raise(2, "digest.equal takes two strings") end
  local key = host.random.bytes(32)
  return host.digest.hmac("sha256", key, a) == host.digest.hmac("sha256", key, b)
end

return digest
