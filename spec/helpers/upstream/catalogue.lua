-- What the stub upstream offers, as a server of one revision writes it: each definition has the members that its
-- revision knows, in a fixed order.
--   catalogue.of("2025-06-18").tools    { { name =, bytes = }, … }
local catalogue = {}

-- Members by kind, with the first and the last revision that knows them.
local MEMBERS <const> = {
  tools = {
    { "name" }, { "title", "2025-06-18" }, { "description" }, { "inputSchema" }, { "outputSchema", "2025-06-18" }, { "annotations", "2025-03-26" },
    { "icons", "2025-11-25" }, { "execution", "2025-11-25", "2025-11-25" }, { "_meta", "2025-06-18" }, { "x-vendor" },
  },
  prompts = {
    { "name" }, { "title", "2025-06-18" }, { "description" }, { "arguments" }, { "icons", "2025-11-25" }, { "_meta", "2025-06-18" }, { "x-vendor" },
  },
  resources = {
    { "uri" }, { "name" }, { "title", "2025-06-18" }, { "description" }, { "mimeType" }, { "size" }, { "annotations" }, { "icons", "2025-11-25" },
    { "_meta", "2025-06-18" }, { "x-vendor" },
  },
  templates = {
    { "uriTemplate" }, { "name" }, { "title", "2025-06-18" }, { "description" }, { "mimeType" }, { "annotations" }, { "icons", "2025-11-25" },
    { "_meta", "2025-06-18" },
  },
}

local ICONS <const> = '[{"src":"data:image/png;base64,AA==","mimeType":"image/png","sizes":["16x16"]}]'
local VENDOR <const> = '{"b":1,"a":2}'
local NO_ARGUMENTS <const> = '{"type":"object","additionalProperties":false}'

local ALL <const> = {
  tools = {
    {
      name = '"echo"', title = '"Echo"', description = '"Answers its arguments as they came."', inputSchema = '{"type":"object"}',
      annotations = '{"title":"Echo","readOnlyHint":false}', icons = ICONS, _meta = '{"example.com/kind":"echo"}', ["x-vendor"] = VENDOR,
    },
    { name = '"counter"', description = '"Counts the calls of its session."', inputSchema = NO_ARGUMENTS },
    {
      name = '"hold"', description = '"Answers when the spec lets it."', inputSchema = '{"type":"object","properties":{"key":{"type":"string"}}}',
    },
    {
      name = '"progress"', description = '"Reports progress `steps` times, then answers."',
      inputSchema = '{"type":"object","properties":{"steps":{"type":"integer","default":3}}}', execution = '{"taskSupport":"forbidden"}',
    },
    { name = '"fail"', description = '"Is answered by a JSON-RPC error."', inputSchema = '{"type":"object"}' },
    { name = '"complain"', description = '"Fails in a result, by isError."', inputSchema = '{"type":"object"}' },
    {
      name = '"big"', description = '"Answers that many bytes of text."',
      inputSchema = '{"type":"object","properties":{"bytes":{"type":"integer"}},"required":["bytes"]}',
    },
    {
      name = '"sum"', title = '"Sum"', description = '"Adds two numbers; answers structured content."',
      inputSchema = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",'
        .. '"properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}',
      outputSchema = '{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}',
    },
    { name = '"kinds"', description = '"Answers every kind of content that its revision knows."', inputSchema = NO_ARGUMENTS },
    {
      name = '"look"', description = '"Reads only."', inputSchema = '{"type":"object"}', annotations = '{"readOnlyHint":true,"openWorldHint":false}',
    },
    {
      name = '"again"', description = '"May be repeated."', inputSchema = '{"type":"object"}',
      annotations = '{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true}',
    },
    {
      name = '"tenant"', description = '"Its arguments are repeated in headers."',
      inputSchema = '{"type":"object","properties":{"tenant":{"type":"string","x-mcp-header":"Tenant"},"level":{"type":"integer","x-mcp-header":"Level"},'
        .. '"dry":{"type":"boolean","x-mcp-header":"Dry"},"text":{"type":"string"}}}',
    },
  },
  prompts = {
    {
      name = '"greet"', title = '"Greet"', description = '"A greeting."', icons = ICONS, ["x-vendor"] = VENDOR,
      arguments = '[{"name":"who","description":"whom to greet","required":true},{"name":"style"}]',
    },
    { name = '"plain"', description = '"Without arguments."' },
  },
  resources = {
    {
      uri = '"stub://text"', name = '"text"', title = '"A text"', description = '"Some text."', mimeType = '"text/plain"', size = "5",
      annotations = '{"audience":["user"],"priority":0.5}', icons = ICONS, ["x-vendor"] = VENDOR,
    },
    { uri = '"stub://bytes"', name = '"bytes"', mimeType = '"application/octet-stream"' },
  },
  templates = {
    { uriTemplate = '"stub://item/{id}"', name = '"item"', title = '"An item"', description = '"One item."', mimeType = '"text/plain"' },
  },
}

-- Content blocks with the first revision that knows them.
local BLOCKS <const> = {
  { '{"type":"text","text":"caf\\u00e9","annotations":{"audience":["user"],"priority":1.0}}' },
  { '{"type":"image","data":"AAEC","mimeType":"image/png"}' },
  { '{"type":"resource","resource":{"uri":"stub://text","mimeType":"text/plain","text":"hello"}}' },
  { '{"type":"audio","data":"AAEC","mimeType":"audio/wav"}', "2025-03-26" },
  { '{"type":"resource_link","uri":"stub://text","name":"text","mimeType":"text/plain"}', "2025-06-18" },
}

local function knows(revision, first, last) return revision >= (first or "") and revision <= (last or "9") end

--- A definition as JSON text, from its members as JSON texts: what `revision` does not know is left out.
function catalogue.write(kind, definition, revision)
  local parts = {}
  for _, member in ipairs(MEMBERS[kind]) do
    local value = definition[member[1]]
    if value and knows(revision, member[2], member[3]) then parts[#parts + 1] = ('"%s":%s'):format(member[1], value) end
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- The URIs of a text, with another scheme.
local function with_scheme(text, scheme) return scheme and scheme ~= "stub" and text:gsub("stub://", scheme .. "://") or text end

--- Everything at a revision: tools, prompts, resources and templates, each a list of { name =, bytes = }. `scheme`: of the
--- URIs, "stub" if it is not given.
function catalogue.of(revision, scheme)
  local made = {}
  for kind, list in pairs(ALL) do
    made[kind] = {}
    for i, definition in ipairs(list) do
      local name = definition.name or definition.uri
      made[kind][i] = { name = with_scheme(name:sub(2, -2), scheme), bytes = with_scheme(catalogue.write(kind, definition, revision), scheme) }
    end
  end
  return made
end

--- The content of the tool `kinds`, as a JSON array.
function catalogue.blocks(revision, scheme)
  local list = {}
  for _, block in ipairs(BLOCKS) do
    if knows(revision, block[2]) then list[#list + 1] = block[1] end
  end
  return with_scheme("[" .. table.concat(list, ",") .. "]", scheme)
end

return catalogue
