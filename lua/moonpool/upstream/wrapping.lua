-- URIs of upstreams as clients see them. With `uris: wrap` each URI of an upstream has the upstream's name in it, so
-- that URIs of different upstreams are never equal, whatever an upstream writes:
--   file:///x     NAME+file:///x
--   ui://page     ui://NAME+page        the scheme by which clients recognize the pages of MCP Apps stays
--   outward   from the upstream's URI to that of clients
--   inward    from the clients' URI to that of the upstream

local uris = require "moonpool.runtime.uris"

local wrapping = {}

local PAGE <const> = "ui://"

local function is_page(uri) return uri:sub(1, #PAGE):lower() == PAGE end

--- The URI, or template of URIs, that clients see.
function wrapping.outward(record, uri)
  if not record.wraps_uris then return uri end
  if is_page(uri) then return PAGE .. record.name .. "+" .. uri:sub(#PAGE + 1) end
  return record.name .. "+" .. uri
end

local function unwrapped(name, uri)
  if is_page(uri) then
    local rest = uri:sub(#PAGE + 1)
    return rest:sub(1, #name + 1) == name .. "+" and PAGE .. rest:sub(#name + 2) or nil
  end
  return uri:sub(1, #name + 1):lower() == name .. "+" and uri:sub(#name + 2) or nil
end

--- The upstream's URI for one that a client sent; nil if it is no wrapped URI of this upstream.
function wrapping.inward(record, uri)
  if not record.wraps_uris then return uri end
  return unwrapped(record.name, uri) or unwrapped(record.name, uris.normal(uri))      -- a name may be percent-encoded
end

-- -- definitions -----------------------------------------------------------------------------------------------------

-- member of `_meta` that older versions have for `_meta.ui.resourceUri`
local OLD_PAGE <const> = "ui/resourceUri"

local function is_object(value) return type(value) == "table" end

-- Wraps the URI of a tool's page (MCP Apps) in the `_meta` of a definition or result.
local function wrap_page(record, meta)
  if not is_object(meta) then return end
  if type(meta[OLD_PAGE]) == "string" then meta[OLD_PAGE] = wrapping.outward(record, meta[OLD_PAGE]) end
  local ui = meta.ui
  if is_object(ui) and type(ui.resourceUri) == "string" then ui.resourceUri = wrapping.outward(record, ui.resourceUri) end
end

local member_of = { resources = "uri", templates = "uriTemplate" }

--- Changes a definition of the upstream to the form for clients.
function wrapping.definition(record, kind, definition)
  if not record.wraps_uris then return end
  local member = member_of[kind]
  if member and type(definition[member]) == "string" then definition[member] = wrapping.outward(record, definition[member]) end
  wrap_page(record, definition._meta)
end

--- True if clients see another definition than the upstream's, whose text is `text`, because URIs are wrapped.
function wrapping.changes(record, kind, text)
  return record.wraps_uris and (member_of[kind] ~= nil or text:find("resourceUri", 1, true) ~= nil)
end

-- -- results ---------------------------------------------------------------------------------------------------------

--- Called for each URI of another resource in a result: f(record, call, uri for clients, the upstream's uri). Replaced
--- by upstream/result_links.lua.
function wrapping.on_link(_, _, _, _) end

--- True if a resource or template that clients can see has this URI. Replaced by federation/federated.lua.
function wrapping.is_served(_) return false end

-- The URI of a result for clients. Clients can fetch a page of the web themselves, so such a URI stays, unless the
-- upstream has listed it as its resource.
local function of_result(record, uri)
  if not record.wraps_uris then return uri end
  local outward = wrapping.outward(record, uri)
  if uri:find "^[Hh][Tt][Tt][Pp][Ss]?:" and not wrapping.is_served(outward) then return uri end
  return outward
end

-- Changes the member `uri` of a table of a result. `asked`: the upstream's URI that the client read, which is no link.
local function change_uri(record, call, holder, asked)
  local uri = is_object(holder) and holder.uri
  if type(uri) ~= "string" then return end
  local outward = uri == asked and wrapping.outward(record, uri) or of_result(record, uri)
  if outward ~= uri then holder.uri = outward end
  if uri ~= asked then wrapping.on_link(record, call, outward, uri) end
end

local function change_block(record, call, block)
  if block.type == "resource_link" then
    change_uri(record, call, block)
  elseif block.type == "resource" then
    change_uri(record, call, block.resource)
  end
end

--- Changes a result of tools/call to the form for clients.
function wrapping.tool_result(record, call, result)
  for _, block in ipairs(result.content) do change_block(record, call, block) end
  if record.wraps_uris then wrap_page(record, result._meta) end
end

--- Changes a result of prompts/get to the form for clients.
function wrapping.prompt_result(record, call, result)
  for _, message in ipairs(result.messages) do change_block(record, call, message.content) end
end

--- Changes a result of resources/read to the form for clients; `asked` is the upstream's URI of the resource.
function wrapping.read_result(record, call, result, asked)
  for _, part in ipairs(result.contents) do change_uri(record, call, part, asked) end
end

--- Changes the error of an upstream to the form for clients.
function wrapping.error(record, err)
  local data = record.wraps_uris and is_object(err) and err.data
  if is_object(data) and type(data.uri) == "string" then data.uri = wrapping.outward(record, data.uri) end
end

return wrapping
