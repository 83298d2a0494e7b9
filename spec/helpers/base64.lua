-- Base64 with padding (RFC 4648): for specs, and for the host that specs build.
local base64 = {}

local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

function base64.encode(bytes)
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local n = a << 16 | (b or 0) << 8 | (c or 0)
    local function digit(shift)
      local at = (n >> shift & 63) + 1
      return digits:sub(at, at)
    end
    out[#out + 1] = digit(18) .. digit(12) .. (b and digit(6) or "=") .. (c and digit(0) or "=")
  end
  return table.concat(out)
end

--- Returns nil for a text that `encode` never writes.
function base64.decode(text)
  if #text % 4 ~= 0 or not text:find "^[%w+/]*=?=?$" then return nil end
  local out, pad = {}, #text:match "=*$"
  for i = 1, #text, 4 do
    local n = 0
    for k = 0, 3 do
      n = n << 6 | (digits:find(text:sub(i + k, i + k), 1, true) or 1) - 1
    end
    out[#out + 1] = string.char(n >> 16, n >> 8 & 255, n & 255)
  end
  local bytes = table.concat(out)
  bytes = bytes:sub(1, #bytes - pad)
  return base64.encode(bytes) == text and bytes or nil
end

return base64
