-- The Mcp-Param-* headers of a call: revision 2026-07-28 requires them over HTTP for arguments whose schema names a header.

local mirrored = {}

local letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function base64(bytes)
  local out = {}
  for at = 1, #bytes, 3 do
    local a, b, c = bytes:byte(at, at + 2)
    local word, four = a << 16 | (b or 0) << 8 | (c or 0), {}
    for i = 0, 3 do
      local digit = word >> (18 - 6 * i) & 63
      four[i + 1] = letters:sub(digit + 1, digit + 1)
    end
    if not c then four[4] = "=" end
    if not b then four[3] = "=" end
    out[#out + 1] = table.concat(four)
  end
  return table.concat(out)
end

--- Encodes an argument as the value of a header.
function mirrored.encode(text)
  if text:find "^[\x21-\x7e]?[\x20-\x7e]*[\x21-\x7e]$" and not text:find "^%s" and not text:find "^=%?base64%?" then return text end
  return "=?base64?" .. base64(text) .. "?="
end

local function walk(schema, value, headers)
  for name, field in pairs(type(schema) == "table" and schema.properties or {}) do
    local given = type(value) == "table" and value[name]
    if given ~= nil and type(field) == "table" then
      local header = field["x-mcp-header"]
      if header and type(given) ~= "table" then headers["mcp-param-" .. header:lower()] = mirrored.encode(tostring(given)) end
      walk(field, given, headers)
    end
  end
end

--- The headers of a call of `tool`, a definition or nil.
function mirrored.headers(tool, arguments)
  local headers = {}
  if tool and arguments then walk(tool.inputSchema, arguments, headers) end
  return headers
end

return mirrored
