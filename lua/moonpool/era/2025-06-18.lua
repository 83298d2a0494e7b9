-- No icons, no tasks; arguments that do not fit are an error (T-5).

local json = require "moonpool.json"

local function without_icons(member)
  return function(result)
    for _, entry in ipairs(result[member]) do entry.icons = nil end
  end
end

-- A property of a form. Titles of choices stand beside them, only booleans have a default (EL-2).
local function older(property)
  local copy = {}
  for name, value in pairs(property) do copy[name] = value end
  if copy.type == "array" then return nil end
  if copy.oneOf then
    copy.enum, copy.enumNames, copy.oneOf = json.array {}, json.array {}, nil
    for i, choice in ipairs(property.oneOf) do copy.enum[i], copy.enumNames[i] = choice.const, choice.title end
  end
  if copy.type ~= "boolean" then copy.default = nil end
  return copy
end

local function older_form(params)
  if params.mode == "url" then return nil end
  local schema, properties = {}, {}
  for name, value in pairs(params.requestedSchema) do schema[name] = value end
  for name, property in pairs(schema.properties or {}) do
    properties[name] = older(property)
    if not properties[name] then return nil end
  end
  schema.properties = json.object(properties)
  return { message = params.message, requestedSchema = schema }
end

local function without_tools(params) return not params.tools and params or nil end

return {
  date = "2025-06-18", newer = "2025-11-25",
  invalid_arguments = "error",
  tasks = false,
  methods = { ["tasks/get"] = false, ["tasks/result"] = false, ["tasks/list"] = false, ["tasks/cancel"] = false },
  asks_down = { ["elicitation/create"] = older_form, ["sampling/createMessage"] = without_tools },
  result_down = {
    initialize = function(result) result.capabilities.tasks = nil end,
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do tool.icons, tool.execution = nil, nil end
    end,
    ["resources/list"] = without_icons "resources",
    ["resources/templates/list"] = without_icons "resourceTemplates",
    ["prompts/list"] = without_icons "prompts",
  },
}
