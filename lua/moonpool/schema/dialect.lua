-- The keywords that a schema may use: dialects 2020-12 and draft-07, and parts of 2020-12 chosen by `$vocabulary`.
local failure = require "moonpool.schema.failure"
local uris = require "moonpool.runtime.uris"

local dialect = {}

local VOCABULARY <const> = "https://json-schema.org/draft/2020-12/vocab/"

-- Keywords by the last word of their vocabulary's URI. `definitions` and `dependencies` are from older drafts, but
-- widely used.
local vocabularies = {
  core = "$id $schema $ref $anchor $dynamicRef $dynamicAnchor $defs definitions",
  applicator = "prefixItems items contains additionalProperties properties patternProperties dependentSchemas dependencies "
    .. "propertyNames if then else allOf anyOf oneOf not",
  unevaluated = "unevaluatedItems unevaluatedProperties",
  validation = "type const enum multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern "
    .. "maxItems minItems uniqueItems maxContains minContains maxProperties minProperties required dependentRequired",
  ["meta-data"] = "",
  ["format-annotation"] = "",
  content = "",
}

local draft7 = "$id $schema $ref definitions items additionalItems contains additionalProperties properties patternProperties "
  .. "dependencies propertyNames if then else allOf anyOf oneOf not type const enum multipleOf maximum exclusiveMaximum minimum "
  .. "exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems maxProperties minProperties required"

-- Keywords whose values hold schemas, in the order in which they are scanned.
dialect.places = {
  { "$defs", "map" }, { "definitions", "map" },
  { "properties", "map" }, { "patternProperties", "map" }, { "additionalProperties", "schema" },
  { "propertyNames", "schema" }, { "dependentSchemas", "map" }, { "dependencies", "dependencies" },
  { "prefixItems", "list" }, { "items", "items" }, { "additionalItems", "schema" }, { "contains", "schema" },
  { "allOf", "list" }, { "anyOf", "list" }, { "oneOf", "list" }, { "not", "schema" },
  { "if", "schema" }, { "then", "schema" }, { "else", "schema" },
  { "unevaluatedItems", "schema" }, { "unevaluatedProperties", "schema" },
}

local function set(keywords, into)
  for keyword in keywords:gmatch "%S+" do into[keyword] = true end
  return into
end

local everything = {}
for _, keywords in pairs(vocabularies) do set(keywords, everything) end

local known = {
  ["2020-12"] = { keywords = everything },
  -- draft-07: keywords beside a `$ref` are ignored, `items` may be a list, and `$id` may be an anchor.
  ["draft-07"] = { keywords = set(draft7, {}), old = true },
}

function dialect.named(name)
  return known[name]
end

-- The dialect that a `$schema` names, or nil.
function dialect.at(address)
  local name = uris.cut(address):match "^https?://json%-schema%.org/(.+)/schema$"
  return name and known[name:match "^draft/(2020%-12)$" or name]
end

-- The dialect of a meta-schema of 2020-12, from its `$vocabulary`.
function dialect.from(vocabulary, where)
  local keywords = set(vocabularies.core, {})
  for address, required in pairs(vocabulary) do
    local name = address:sub(1, #VOCABULARY) == VOCABULARY and address:sub(#VOCABULARY + 1)
    if name and vocabularies[name] then
      set(vocabularies[name], keywords)
    elseif required then
      failure.fault(where, "vocabulary %q is not known", address)
    end
  end
  return { keywords = keywords }
end

return dialect
