-- The meta-schemas of both dialects, for schemas that refer to them, without annotations.
local BASE <const> = "https://json-schema.org/draft/2020-12/"

local function list(of, least) return { type = "array", items = of, minItems = least } end
local function map(of) return { type = "object", additionalProperties = of } end
local function kind(name) return { type = name } end
local function unique(of) return { type = "array", items = of, uniqueItems = true } end

local TYPES <const> = { "array", "boolean", "integer", "null", "number", "object", "string" }

-- Definitions of numbers and counts that both dialects share; `size` is the dialect's schema for "0 or more".
local function assertions(size, names)
  local number, types = kind "number", { enum = TYPES }
  return {
    type = { anyOf = { types, { type = "array", items = types, minItems = 1, uniqueItems = true } } },
    const = true, enum = list(true),
    multipleOf = { type = "number", exclusiveMinimum = 0 },
    maximum = number, exclusiveMaximum = number, minimum = number, exclusiveMinimum = number,
    maxLength = size, minLength = size, pattern = { type = "string", format = "regex" },
    maxItems = size, minItems = size, uniqueItems = kind "boolean",
    maxProperties = size, minProperties = size, required = names,
  }
end

local function with(fields, more)
  for name, field in pairs(more) do fields[name] = field end
  return fields
end

local any = { ["$dynamicRef"] = "#meta" }
local some = { ["$ref"] = "#/$defs/schemaArray" }
local size, names = { ["$ref"] = "#/$defs/nonNegativeInteger" }, { ["$ref"] = "#/$defs/stringArray" }
local anchor, reference = { type = "string", pattern = "^[A-Za-z_][-A-Za-z0-9._]*$" }, { type = "string", format = "uri-reference" }

local function vocabulary(name, properties, defs)
  return {
    ["$schema"] = BASE .. "schema", ["$id"] = BASE .. "meta/" .. name, ["$dynamicAnchor"] = "meta",
    ["$vocabulary"] = { ["https://json-schema.org/draft/2020-12/vocab/" .. name] = true },
    type = { "object", "boolean" }, properties = properties, ["$defs"] = defs,
  }
end

local parts = {
  vocabulary("core", {
    ["$id"] = { type = "string", pattern = "^[^#]*#?$" }, ["$schema"] = { type = "string", format = "uri" },
    ["$ref"] = reference, ["$anchor"] = anchor, ["$dynamicRef"] = reference, ["$dynamicAnchor"] = anchor,
    ["$vocabulary"] = map(kind "boolean"), ["$comment"] = kind "string", ["$defs"] = map(any),
  }),
  vocabulary("applicator", {
    prefixItems = some, items = any, contains = any, additionalProperties = any, properties = map(any),
    patternProperties = map(any), dependentSchemas = map(any), propertyNames = any,
    ["if"] = any, ["then"] = any, ["else"] = any, allOf = some, anyOf = some, oneOf = some, ["not"] = any,
  }, { schemaArray = list(any, 1) }),
  vocabulary("unevaluated", { unevaluatedItems = any, unevaluatedProperties = any }),
  vocabulary("validation", with(assertions(size, names), {
    maxContains = size, minContains = size, dependentRequired = map(names),
  }), { nonNegativeInteger = { type = "integer", minimum = 0 }, stringArray = unique(kind "string") }),
  vocabulary("meta-data", {
    title = kind "string", description = kind "string", default = true, deprecated = kind "boolean",
    readOnly = kind "boolean", writeOnly = kind "boolean", examples = list(true),
  }),
  vocabulary("format-annotation", { format = kind "string" }),
  vocabulary("content", { contentEncoding = kind "string", contentMediaType = kind "string", contentSchema = any }),
}

local meta = {}

local root = vocabulary("schema", {
  definitions = map(any), dependencies = map { anyOf = { any, { ["$ref"] = "meta/validation#/$defs/stringArray" } } },
})
root["$id"], root["$vocabulary"], root.allOf = BASE .. "schema", {}, {}
for i, part in ipairs(parts) do
  meta[part["$id"]] = part
  root.allOf[i] = { ["$ref"] = part["$id"] }
  for name in pairs(part["$vocabulary"]) do root["$vocabulary"][name] = true end
end
meta[root["$id"]] = root

local self, selves = { ["$ref"] = "#" }, { ["$ref"] = "#/definitions/schemaArray" }
local size7, names7 = { type = "integer", minimum = 0 }, unique(kind "string")

meta["http://json-schema.org/draft-07/schema"] = {
  ["$schema"] = "http://json-schema.org/draft-07/schema#", ["$id"] = "http://json-schema.org/draft-07/schema#",
  type = { "object", "boolean" },
  definitions = { schemaArray = list(self, 1), nonNegativeInteger = size7, stringArray = names7 },
  properties = with(assertions(size7, names7), {
    ["$id"] = reference, ["$schema"] = { type = "string", format = "uri" }, ["$ref"] = reference,
    ["$comment"] = kind "string", title = kind "string", description = kind "string", default = true,
    readOnly = kind "boolean", writeOnly = kind "boolean", examples = list(true), format = kind "string",
    contentMediaType = kind "string", contentEncoding = kind "string",
    items = { anyOf = { self, selves } }, additionalItems = self, contains = self,
    additionalProperties = self, definitions = map(self), properties = map(self), patternProperties = map(self),
    dependencies = map { anyOf = { self, names7 } }, propertyNames = self,
    ["if"] = self, ["then"] = self, ["else"] = self, allOf = selves, anyOf = selves, oneOf = selves, ["not"] = self,
  }),
}

return setmetatable(meta, { __index = function(_, address)
  local plain = address:gsub("^https?://json%-schema%.org/draft%-", "http://json-schema.org/draft-")
  return rawget(meta, plain)
end })
