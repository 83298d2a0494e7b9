-- Hints about options that authors know from JSON Schema or other MCP libraries, with their names here.

local hint_options = {}

local first = "it is the first item, without a name, as in %s { \"What it does.\", … }"
local second = "the function is the item after the description, without a name"

local of_things = {
  description = first, desc = first, doc = first, summary = first,
  handler = second, run = second, func = second, fn = second, callback = second, execute = second, action = second,
  name = "the name comes from the file's path", id = "the name comes from the file's path",
  inputSchema = "it is 'input'", schema = "it is 'input'", parameters = "it is 'input'", params = "it is 'input'",
  arguments = "it is 'input'; of a prompt 'args'",
  outputSchema = "it is 'output'", readOnlyHint = "it is 'read_only'", destructiveHint = "it is 'destructive'", idempotentHint = "it is 'idempotent'",
  openWorldHint = "it is 'open_world'", mimeType = "it is 'mime'", uriTemplate = "it is 'uri'", interval = "it is 'every', as in every = 5 * minutes",
}

local of_types = {
  minimum = "min", maximum = "max", minLength = "min", maxLength = "max", minItems = "min", maxItems = "max", minProperties = "min",
  maxProperties = "max", ge = "min", le = "max", gt = "above", lt = "below", exclusiveMinimum = "above", exclusiveMaximum = "below",
  multipleOf = "step", uniqueItems = "unique", regex = "pattern", contentMediaType = "mime", contentEncoding = "encoding",
  readOnly = "read_only", writeOnly = "write_only", dependentRequired = "needs", propertyNames = "keys", patternProperties = "patterns", desc = "description",
}

local of_types_otherwise = {
  enum = "t.one_of { \"a\", \"b\" } is one of several values", choices = "t.one_of { \"a\", \"b\" } is one of several values",
  required = "a field is required unless it is t.optional(…) or has a default", nullable = "t.nullable(…) may be null",
  items = "t.list(t.string) is a list of texts", properties = "t.object { name = t.string } has fields", additionalProperties = "'open' or 'rest' of t.object",
  type = "t.integer, t.string and so on are the types",
}

--- A hint about the option `name` of a tool, resource, prompt, job or policy (`word`), or nil.
function hint_options.of_thing(name, word)
  local hint = of_things[name]
  return hint and (hint:gsub("%%s", word))
end

--- A hint about the option `name` of a type, or nil. `has(option)` says whether the type has an option.
function hint_options.of_type(name, has)
  local own = of_types[name]
  return own and has(own) and "it is '" .. own .. "' here" or of_types_otherwise[name]
end

local list, one, map, object = "t.list(t.string)", "t.one_of { \"a\", \"b\" }", "t.map(t.string)", "t.object { name = t.string }"

-- Names of types in other languages and libraries.
local other_types = {
  str = "t.string", text = "t.string", int = "t.integer", long = "t.integer", float = "t.number", double = "t.number", decimal = "t.number", num = "t.number",
  bool = "t.boolean", array = list, arr = list, List = list, enum = one, literal = "t.const \"a\"", union = "t.any_of { t.string, t.integer }",
  Optional = "t.optional(t.string)", maybe = "t.optional(t.string)", Literal = one, Union = "t.any_of { t.string, t.integer }", dict = map, record = map,
  Dict = map, struct = object, model = object, obj = object, none = "t.null", unknown = "t.any", date = "t.string { format = \"date\" }",
  datetime = "t.string { format = \"date-time\" }", url = "t.string { format = \"uri\" }", uri = "t.string { format = \"uri\" }",
  email = "t.string { format = \"email\" }", uuid = "t.string { format = \"uuid\" }", bytes = "t.string { encoding = \"base64\" }",
  json = "t.any; t.schema { … } takes JSON Schema", set = "t.list(t.string, { unique = true })",
}

--- A hint about the type t.`name`, which does not exist, or nil.
function hint_options.type(name) return other_types[name] and "it is " .. other_types[name] .. " here" end

return hint_options
