-- This revision lacks icons, tasks, tools in sampling, and elicitation by URL. Arguments that do not fit a tool's
-- schema are a JSON-RPC error (T-5).

local json = require "moonpool.json"

-- Removes the icons from each entry of a list.
local function without_icons(member)
  return function(result)
    for _, entry in ipairs(result[member]) do entry.icons = nil end
  end
end

-- A form property in the format of this revision; nil if the revision cannot express it. Titles of choices are in
-- `enumNames`, and only booleans have a default (EL-2).
local function older_property(property)
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

-- The params of elicitation/create; nil if this revision cannot express a field.
local function older_form(params)
  if params.mode == "url" then return nil end
  local schema, properties = {}, {}
  for name, value in pairs(params.requestedSchema) do schema[name] = value end
  for name, property in pairs(schema.properties or {}) do
    properties[name] = older_property(property)
    if not properties[name] then return nil end
  end
  schema.properties = json.object(properties)
  return { message = params.message, requestedSchema = schema }
end

-- The params of sampling/createMessage; nil if they have tools, which this revision lacks.
local function without_tools(params) return not params.tools and params or nil end

return {
  from = "2025-11-25",
  has_elicitation_modes = false,
  has_sampling_context = false,
  invalid_arguments = "error",
  tasks = false,
  methods = { ["tasks/get"] = false, ["tasks/result"] = false, ["tasks/list"] = false, ["tasks/cancel"] = false },
  convert_request = { ["elicitation/create"] = older_form, ["sampling/createMessage"] = without_tools },
  convert_result = {
    initialize = function(result) result.capabilities.tasks = nil end,
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do tool.icons, tool.execution = nil, nil end
    end,
    ["resources/list"] = without_icons "resources",
    ["resources/templates/list"] = without_icons "resourceTemplates",
    ["prompts/list"] = without_icons "prompts",
  },
}
