-- Converts the value of a tool's handler to a result of tools/call, in the base revision.

local host = require "moonpool.host"
local json = require "moonpool.json"

local encode, raw = json.encode, json.raw
local type, math_type, format, utf8_len = type, math.type, string.format, utf8.len
local getmetatable, setmetatable = debug.getmetatable, setmetatable

local content = {}

-- Metatables that mark content blocks, and values of bytes(…). Scripts cannot reach them.
local block = { __name = "moonpool.block", __metatable = false }
local binary = { __name = "moonpool.bytes", __metatable = false }

-- The whole results that upstreams gave, in the base revision: handlers of federated things return them, and policies
-- may change them. They have no metatable of ours, as their own keeps the bytes that they were decoded from.
local forwarded = setmetatable({}, { __mode = "k" })

function content.forwarded(result)
  forwarded[result] = true
  return result
end

function content.is_forwarded(value) return type(value) == "table" and forwarded[value] == true end

function content.is_block(value) return getmetatable(value) == block end
function content.is_bytes(value) return getmetatable(value) == binary end

local server = raw(encode { name = host.config.server.name, version = host.config.server.version })
local server_key = "io.modelcontextprotocol/serverInfo"

--- The `_meta` of every result of a stateless revision (N-4), as JSON.
content.meta = raw(encode { [server_key] = server })
local meta = content.meta

--- The `_meta` of every result with one further member.
function content.meta_with(key, value) return { [server_key] = server, [key] = value } end

--- The `_meta` of a result with the members of `more`, a table, which is changed.
function content.meta_of(more)
  if next(more) == nil then return meta end
  more[server_key] = server
  return more
end

local base64 = host.base64.encode
content.base64 = base64

local function checked(value, kind, what)
  if type(value) ~= kind then error(what .. " must be a " .. kind .. ", got a " .. type(value), 3) end
  return value
end

--- The annotations of a block (audience, priority, lastModified), or nil.
function content.annotations(options)
  if not (options.audience or options.priority or options.modified) then return nil end
  return { audience = options.audience, priority = options.priority, lastModified = options.modified }
end

-- The options that every block has.
local function annotate(made, options)
  if options then made.annotations = content.annotations(options) end
  return setmetatable(made, block)
end

function content.text(s, options)
  if type(s) == "number" or type(s) == "boolean" then s = tostring(s) end
  if not utf8_len(checked(s, "string", "text")) then error("text must be UTF-8", 2) end
  return annotate({ type = "text", text = s }, options)
end

function content.image(bytes, mime, options)
  return annotate({
    type = "image", data = base64(checked(bytes, "string", "image bytes")), mimeType = checked(mime or "image/png", "string", "mime"),
  }, options)
end

function content.audio(bytes, mime, options)
  return annotate({
    type = "audio", data = base64(checked(bytes, "string", "audio bytes")), mimeType = checked(mime or "audio/wav", "string", "mime"),
  }, options)
end

--- link(uri [, name | { description, name =, title =, … }]): a link to a resource, which the client may read.
function content.link(uri, options)
  if type(options) == "string" then options = { name = options } end
  options = options or {}
  checked(uri, "string", "uri")
  return annotate({
    type = "resource_link", uri = uri, name = options.name or uri:match "([^/]+)/*$" or uri, title = options.title,
    description = options.description or options[1], mimeType = options.mime, size = options.size,
  }, options)
end

--- bytes(…): binary content of a resource, or of `embed`.
function content.bytes(data, mime)
  return setmetatable({ bytes = checked(data, "string", "bytes"), mime = mime and checked(mime, "string", "mime") }, binary)
end

--- embed(uri, text, mime) or embed(uri, bytes(…)): a resource inside a result.
function content.embed(uri, body, mime)
  checked(uri, "string", "uri")
  local resource = { uri = uri, mimeType = mime }
  if type(body) == "table" then
    resource.mimeType = body.mime or mime
    if body.bytes then
      resource.blob = base64(checked(body.bytes, "string", "bytes"))
    else
      resource.text = checked(body.text, "string", "text")
    end
  else
    resource.text = checked(body, "string", "the text of an embedded resource")
  end
  return setmetatable({ type = "resource", resource = resource }, block)
end

--- A number as text: with 14 digits if that reads back as the same number, else with 17.
local function number_text(n)
  if math_type(n) == "integer" then return format("%d", n) end
  if n ~= n then return "nan" end
  local short = format("%.14g", n)
  if tonumber(short) == n then return short end
  return format("%.17g", n)
end
content.number_text = number_text

local function with_text(s)
  return { content = { { type = "text", text = s } }, resultType = "complete", _meta = meta }
end

--- A result with isError, whose text the model reads.
function content.failed(why)
  return { content = { { type = "text", text = why } }, isError = true, resultType = "complete", _meta = meta }
end

local function with_blocks(list)
  local blocks = {}
  for i = 1, #list do
    local item = list[i]
    if getmetatable(item) == block then
      blocks[i] = item
    elseif type(item) == "string" then
      blocks[i] = { type = "text", text = item }
    elseif type(item) == "number" then
      blocks[i] = { type = "text", text = number_text(item) }
    else
      return nil, "item " .. i .. " of the returned list is a " .. type(item) .. " between content blocks"
    end
  end
  return { content = blocks, resultType = "complete", _meta = meta }
end

local function has_block(list)
  for i = 1, #list do
    if getmetatable(list[i]) == block then return true end
  end
  return false
end

-- The JSON is encoded once: it is the text block for people and older revisions, and structuredContent.
local function structured(value)
  local ok, bytes, made = pcall(json.encoded, value)
  if not ok then return nil, "the returned value is not JSON: " .. tostring(bytes) end
  return { content = { { type = "text", text = bytes } }, structuredContent = made, resultType = "complete", _meta = meta }
end

--- The result for `value`; or nil and the fault of it. `as_json`: the tool declares an output schema.
function content.result(value, as_json)
  local kind = type(value)
  if as_json and getmetatable(value) ~= block then return structured(value) end
  if kind == "string" then
    if not utf8_len(value) then return nil, "the returned text is not UTF-8" end
    return with_text(value)
  end
  if kind == "number" then return with_text(number_text(value)) end
  if kind == "boolean" then return with_text(value and "true" or "false") end
  if kind == "table" then
    if getmetatable(value) == block then return { content = { value }, resultType = "complete", _meta = meta } end
    if has_block(value) then return with_blocks(value) end
    if getmetatable(value) == binary then return nil, "a tool answers with image(…), audio(…) or embed(uri, bytes(…)), not with bytes alone" end
    return structured(value)
  end
  if kind == "userdata" then return structured(value) end       -- json.null, json.empty_array
  return nil, "a tool cannot return a " .. kind
end

local kinds_of_block = { text = true, image = true, audio = true, resource = true, resource_link = true }

--- True for { content = { { type = "text", text = … } } }, which handlers of SDKs return, and which is data here.
function content.is_like_sdk(value)
  local list = type(value) == "table" and rawget(value, "content")
  local item = type(list) == "table" and rawget(list, 1)
  return type(item) == "table" and kinds_of_block[rawget(item, "type")] == true
end

--- The result of a handler that returned no value.
function content.nothing()
  return { content = json.array {}, resultType = "complete", _meta = meta }
end

return content
