-- Formats content items of results and messages for a terminal.

local json = require "moonpool.json"

local format_content = {}

local function size_of(base64)
  local padding = #base64:match "=*$"
  return #base64 // 4 * 3 - padding
end

local shown = {
  text = function(item) return item.text end,
  image = function(item) return ("[image %s, %d bytes]"):format(item.mimeType, size_of(item.data)) end,
  audio = function(item) return ("[audio %s, %d bytes]"):format(item.mimeType, size_of(item.data)) end,
  resource_link = function(item) return ("[link %s%s]"):format(item.uri, item.name and " " .. item.name or "") end,
  resource = function(item)
    local inside = item.resource
    if inside.text then return inside.text end
    return ("[blob %s %s, %d bytes]"):format(inside.uri, inside.mimeType or "application/octet-stream", size_of(inside.blob or ""))
  end,
}

--- The text of a content item.
function format_content.text(item)
  local show = shown[item.type]
  return show and show(item) or json.encode(item)
end

local digits = {}
for i = 1, 64 do digits[("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):byte(i)] = i - 1 end

--- Decodes Base64.
function format_content.bytes(base64)
  local out, bits, count = {}, 0, 0
  for i = 1, #base64 do
    local digit = digits[base64:byte(i)]
    if digit then
      bits, count = (bits << 6 | digit) & 0xffffff, count + 6
      if count >= 8 then
        count = count - 8
        out[#out + 1] = string.char(bits >> count & 0xff)
      end
    end
  end
  return table.concat(out)
end

format_content.size = size_of

return format_content