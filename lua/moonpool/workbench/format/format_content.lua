-- Formats content items of results and messages for a terminal.

local json = require "moonpool.json"
local keys = require "moonpool.keys"

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

local url_letters = { ["+"] = "-", ["/"] = "_" }

--- Decodes Base64. Passes over characters that are none of Base64.
function format_content.bytes(base64) return keys.unbase64url((base64:gsub("[^%w+/]", ""):gsub("[+/]", url_letters))) or "" end

format_content.size = size_of

return format_content