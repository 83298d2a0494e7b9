-- Counts how many schemas apply to the same value, through references and allOf, anyOf and so on. Schemas whose check
-- would never end, or only after hours, are refused.
local failure = require "moonpool.schema.failure"
local library = require "moonpool.schema.library"

local fault = failure.fault

local MAX_SCHEMAS <const> = 10000

local lists <const> = { "allOf", "anyOf", "oneOf" }
local singles <const> = { "not", "if", "then", "else" }

local weigh

local function weigh_schema(schema, scope)
  local node = library.node_of(schema, scope)
  return type(node) == "table" and weigh(node) or 1
end

function weigh(node)
  if node.weight then return node.weight end
  if node.weighing then fault(node.where, "the schema leads to itself in a circle: no value would ever be checked") end
  node.weighing = true
  local words, total = node.words, 1
  local target = node.refs["$ref"]
  if type(target) == "table" then total = total + weigh(target) end
  for _, keyword in ipairs(lists) do
    if library.is_list(words[keyword]) then
      for _, schema in ipairs(words[keyword]) do total = total + weigh_schema(schema, node.scope) end
    end
  end
  for _, keyword in ipairs(singles) do
    if words[keyword] ~= nil then total = total + weigh_schema(words[keyword], node.scope) end
  end
  if total > MAX_SCHEMAS then fault(node.where, "more than %d schemas apply to one value", MAX_SCHEMAS) end
  node.weighing, node.weight = nil, total
  return total
end

--- Raises an error for a schema whose count is too high. All references of `books` are resolved.
return function(books)
  for _, node in ipairs(books.nodes) do weigh(node) end
end
