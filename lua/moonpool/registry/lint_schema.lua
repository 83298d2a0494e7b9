-- Warnings of `moonpool check` about schemas: a `format` that JSON Schema does not define, so that no client checks it.

local problem = require "moonpool.runtime.diagnostic"
local registry = require "moonpool.registry.registry"
local suggest = require "moonpool.runtime.suggest"

local MAX_DEPTH = 32

local formats = {
  "byte", "date", "date-time", "duration", "email", "hostname", "idn-email", "idn-hostname", "ipv4", "ipv6", "iri", "iri-reference",
  "json-pointer", "password", "regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid",
}
local is_known = {}
for _, name in ipairs(formats) do is_known[name] = true end

local function each_format(schema, visit, depth)
  if type(schema) ~= "table" or depth > MAX_DEPTH then return end
  if type(schema.format) == "string" and not is_known[schema.format] then visit(schema.format) end
  for _, inner in pairs(schema) do each_format(inner, visit, depth + 1) end
end

--- Appends the warnings to `list`.
return function(list)
  local tools, names = registry.everything "tools"
  for _, name in ipairs(names) do
    local thing, warned = tools[name], {}
    for _, member in ipairs { "inputSchema", "outputSchema" } do
      each_format(thing.definition[member], function(format)
        if warned[format] then return end
        warned[format] = true
        local text = problem.script_text(thing.path) or ""
        list[#list + 1] = problem.of_script(thing.path, problem.find(text, format), "unknown format '" .. format .. "' in '" .. name
          .. "': clients ignore it", suggest.listed(format, formats, "formats"))
      end, 1)
    end
  end
end
