-- The library `base64` of scripts (RFC 4648): the standard alphabet with padding, and the URL-safe alphabet without
-- padding.

local host = require "moonpool.host"
local problem = require "moonpool.runtime.diagnostic"

local base64 = {}

local function check(what, text)
  if type(text) ~= "string" then problem.raise(3, what .. " takes a string, not a " .. type(text)) end
end

-- The bytes that one C call encodes, a multiple of 3, or decodes, a multiple of 4. A task can be preempted between the
-- pieces of a text.
local BYTES, LETTERS = 3 << 18, 4 << 18

local function in_pieces(text, size, f)
  if #text <= size then return f(text) end
  local pieces = {}
  for at = 1, #text, size do
    local piece = f(text:sub(at, at + size - 1))
    if not piece then return nil end
    pieces[#pieces + 1] = piece
  end
  return table.concat(pieces)
end

local function encode(bytes) return in_pieces(bytes, BYTES, host.base64.encode) end

-- Padding ends the text, so only the last piece may have it.
local function decode(text)
  local padding = #text > LETTERS and text:find("=", 1, true)
  if padding and padding < #text - 1 then return nil end
  return in_pieces(text, LETTERS, host.base64.decode)
end

function base64.encode(bytes)
  check("base64.encode", bytes)
  return encode(bytes)
end

--- Decodes a text to bytes; or nil, why.
function base64.decode(text)
  check("base64.decode", text)
  local bytes = decode(text)
  if not bytes then return nil, "the text is not Base64" end
  return bytes
end

function base64.url_encode(bytes)
  check("base64.url_encode", bytes)
  return (encode(bytes):gsub("[+/=]", { ["+"] = "-", ["/"] = "_", ["="] = "" }))
end

function base64.url_decode(text)
  check("base64.url_decode", text)
  local usual = not text:find "[+/]" and text:gsub("=*$", ""):gsub("[-_]", { ["-"] = "+", ["_"] = "/" })
  local bytes = usual and decode(usual .. ("="):rep(-#usual % 4))
  if not bytes then return nil, "the text is not base64url" end
  return bytes
end

return base64
