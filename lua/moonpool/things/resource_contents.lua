-- Converts the value of a resource's handler to the contents of resources/read, in the base revision.

local content = require "moonpool.things.tool_result"
local json = require "moonpool.json"

local contents = {}

local order = { __order = { "uri", "mimeType", "text", "blob", "_meta" } }

local function text_of(uri, mime, text, meta)
  if not utf8.len(text) then return nil, "the returned text is not UTF-8: return other bytes as bytes(…)" end
  return setmetatable({ uri = uri, mimeType = mime, text = text, _meta = meta }, order)
end

-- One item of the contents: a text, bytes, a text block, or embed(…) with its own URI. Nil for a value that becomes
-- JSON.
local function item(value, uri, resource)
  local kind = type(value)
  if kind == "string" then return text_of(uri, resource.mime or "text/plain", value, resource.meta) end
  if content.is_bytes(value) then
    local mime = value.mime or resource.mime or "application/octet-stream"
    return setmetatable({ uri = uri, mimeType = mime, blob = content.base64(value.bytes), _meta = resource.meta }, order)
  end
  if content.is_block(value) then
    if value.type == "text" then return text_of(uri, resource.mime or "text/plain", value.text, resource.meta) end
    if value.type == "resource" then
      local inner = value.resource
      return setmetatable({ uri = inner.uri, mimeType = inner.mimeType, text = inner.text, blob = inner.blob }, order)
    end
    return nil, "a resource cannot hold a block of type " .. value.type .. ": return bytes(…) or embed(…)"
  end
  if kind == "number" then return text_of(uri, resource.mime or "text/plain", content.number_text(value), resource.meta) end
  if kind == "boolean" then return text_of(uri, resource.mime or "text/plain", tostring(value), resource.meta) end
end

local function is_several(value)
  if type(value) ~= "table" then return false end
  for i = 1, #value do
    if content.is_block(value[i]) or content.is_bytes(value[i]) then return true end
  end
  return false
end

--- The contents; or nil and the fault of `value`.
function contents.of(value, uri, resource)
  if not is_several(value) then
    local made, why = item(value, uri, resource)
    if why then return nil, why end
    if not made then
      local ok, bytes = pcall(json.encode, value)
      if not ok then return nil, "the returned value is not JSON: " .. tostring(bytes) end
      made = text_of(uri, resource.mime or "application/json", bytes, resource.meta)
    end
    return json.array { made }
  end
  local list = json.array {}
  for i = 1, #value do
    local made, why = item(value[i], uri, resource)
    if not made then return nil, "item " .. i .. " of the returned list: " .. (why or "a " .. type(value[i]) .. " between contents") end
    list[i] = made
  end
  return list
end

return contents
