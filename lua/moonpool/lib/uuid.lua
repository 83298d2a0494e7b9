-- The library `uuid` of scripts (RFC 9562): `uuid()` is random; `uuid.v7()` sorts by the time it was made.

local host = require "moonpool.host"

local uuid = {}

local function shown(high, low)
  return ("%08x-%04x-%04x-%04x-%012x"):format(high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48, low & 0xffffffffffff)
end

local function variant(low) return low & 0x3fffffffffffffff | 0x8000000000000000 end

function uuid.v4()
  local high, low = ("I8I8"):unpack(host.random.bytes(16))
  return shown(high & 0xffffffffffff0fff | 0x4000, variant(low))
end

local last = 0        -- the last timestamp: milliseconds, multiplied by 4096, plus a fraction of 12 bits

function uuid.v7()
  last = math.max(last + 1, math.floor(host.time.clock() * 1000 * 4096))
  return shown(last >> 12 << 16 | 0x7000 | last & 0xfff, variant((("I8"):unpack(host.random.bytes(8)))))
end

--- The library of one script.
function uuid.library()
  return setmetatable({ v4 = uuid.v4, v7 = uuid.v7 }, { __call = function() return uuid.v4() end, __metatable = false })
end

return uuid
