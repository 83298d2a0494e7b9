-- The schemas of one compilation: their URIs, anchors and references. No schema is fetched.
--
--   scope   a schema resource, which one URI names. Has `base`, `root`, `dialect`, and by schema its `nodes`; the resources
--           inside it are `embedded`. A table that is in two scopes has two nodes.
--   node    a schema object: `schema`, its known `words`, `scope`, `where` (for messages), `refs` (by keyword: a node, or a
--           boolean schema)
local dialect = require "moonpool.schema.dialect"
local failure = require "moonpool.schema.failure"
local value = require "moonpool.schema.value"
local sorted = require "moonpool.runtime.sorted_keys"
local uris = require "moonpool.runtime.uris"

local fault, kind_of, articles = failure.fault, value.kind_of, value.articles

local LEVELS <const> = 64
local SCHEMAS <const> = 10000

local library = {}
library.__index = library

function library.new(resources, default_dialect)
  return setmetatable({ resources = resources, default = default_dialect, scopes = {}, pending = {}, nodes = {}, count = 0 }, library)
end

-- The keywords of a schema that its dialect knows.
local function known_words(schema, known)
  if known.old and schema["$ref"] ~= nil then
    return { ["$ref"] = schema["$ref"], definitions = schema.definitions }
  end
  local words = {}
  for word, v in next, schema do
    if known.keywords[word] then words[word] = v end
  end
  return words
end

-- True for a list, and for an empty table that has no JSON metatable.
function library.is_list(v)
  return kind_of(v) == "array" or type(v) == "table" and next(v) == nil
end

function library:dialect_of(schema, inherited, where)
  local address = schema["$schema"]
  if address == nil then return inherited end
  if type(address) ~= "string" then fault(where, "$schema must be a string") end
  local found = dialect.at(address)
  if found then return found end
  local meta = self.resources[address] or self.resources[uris.cut(address)]
  if type(meta) ~= "table" then
    fault(where, "dialect %q is not known; known are 2020-12 and draft-07", address)
  end
  local base = dialect.at(type(meta["$schema"]) == "string" and meta["$schema"] or "") or self.default
  return type(meta["$vocabulary"]) == "table" and dialect.from(meta["$vocabulary"], where) or base
end

local function id_of(schema, known)
  local id = schema["$id"]
  if id == nil or known.old and schema["$ref"] ~= nil then return "", "" end
  if type(id) ~= "string" then return nil end
  return uris.cut(id)
end

-- Makes a resource of `schema`. `address` is the URI under which the schema was found, or the base of the resource
-- around it.
function library:open(schema, address, where, around, depth)
  local scope = { base = address, root = schema, where = where, nodes = {}, embedded = {}, anchors = {}, dynamic = {} }
  if type(schema) == "table" then
    scope.dialect = self:dialect_of(schema, around and around.dialect or self.default, where)
    local head = id_of(schema, scope.dialect)
    if head and head ~= "" then scope.base = uris.join(address, head) end
  end
  local other = self.scopes[scope.base]
  if other and other.root ~= schema then fault(where, "two schemas have the $id %q", scope.base) end
  self.scopes[scope.base] = scope
  if around then
    around.embedded[schema] = scope
  else
    self.scopes[address] = scope
  end
  self:scan(schema, scope, where, depth)
  return scope
end

local function name_anchor(node, keyword, into, also)
  local name = node.words[keyword]
  if name == nil then return end
  if type(name) ~= "string" or name == "" then fault(node.where, "%s must be a name", keyword) end
  for _, anchors in ipairs { into, also } do
    if anchors[name] and anchors[name] ~= node then fault(node.where, "two schemas have the anchor %q", name) end
    anchors[name] = node
  end
end

function library:scan_names(node)
  local scope = node.scope
  local head, fragment = id_of(node.schema, scope.dialect)
  if not head then fault(node.where, "$id must be a string") end
  if fragment ~= "" and fragment:sub(1, 1) ~= "/" then
    if not scope.dialect.old then fault(node.where, "$id must not have a fragment; use $anchor") end
    scope.anchors[fragment] = node
  end
  name_anchor(node, "$anchor", scope.anchors)
  name_anchor(node, "$dynamicAnchor", scope.anchors, scope.dynamic)
  for _, keyword in ipairs { "$ref", "$dynamicRef" } do
    local reference = node.words[keyword]
    if reference ~= nil then
      if type(reference) ~= "string" then fault(node.where, "%s must be a string", keyword) end
      self.pending[#self.pending + 1] = { node = node, keyword = keyword }
      self.dynamic = self.dynamic or keyword == "$dynamicRef"
    end
  end
end

function library:scan_list(list, scope, where, depth)
  for i = 1, #list do self:scan(list[i], scope, where .. "/" .. i - 1, depth) end
end

function library:scan_place(found, shape, scope, where, depth)
  if shape == "items" then shape = scope.dialect.old and kind_of(found) == "array" and "list" or "schema" end
  if shape == "schema" then
    self:scan(found, scope, where, depth)
  elseif shape == "list" then
    if not library.is_list(found) then fault(where, "must be a list of schemas, not %s", articles[kind_of(found)]) end
    self:scan_list(found, scope, where, depth)
  else
    if kind_of(found) ~= "object" then fault(where, "must be an object of schemas, not %s", articles[kind_of(found)]) end
    for _, name in ipairs(sorted(found)) do
      local inner = found[name]
      if shape == "map" or not library.is_list(inner) then
        self:scan(inner, scope, where .. "/" .. failure.escape(name), depth)
      end
    end
  end
end

-- Scans a schema: nodes, anchors, embedded resources, references.
function library:scan(schema, scope, where, depth)
  if type(schema) == "boolean" then return end
  if kind_of(schema) ~= "object" then
    fault(where, "a schema must be an object or a boolean, not %s", articles[kind_of(schema)])
  end
  if scope.nodes[schema] or scope.embedded[schema] then return end
  if depth > LEVELS then fault(where, "schemas are nested deeper than %d levels", LEVELS) end

  local head = id_of(schema, scope.dialect)
  if head and head ~= "" and schema ~= scope.root then
    self:open(schema, scope.base, where, scope, depth)
    return
  end

  self.count = self.count + 1
  if self.count > SCHEMAS then fault(where, "more than %d schemas inside each other", SCHEMAS) end
  local node = { schema = schema, words = known_words(schema, scope.dialect), scope = scope, where = where, refs = {} }
  scope.nodes[schema] = node
  self.nodes[#self.nodes + 1] = node
  self:scan_names(node)
  for _, place in ipairs(dialect.places) do
    local found = node.words[place[1]]
    if found ~= nil then self:scan_place(found, place[2], scope, where .. "/" .. place[1], depth + 1) end
  end
end

-- The node of a schema that was scanned in `scope`; or the boolean, for a boolean schema.
function library.node_of(schema, scope)
  if type(schema) == "boolean" then return schema end
  local inner = scope.embedded[schema]
  return inner and inner.nodes[schema] or scope.nodes[schema]
end

return library
