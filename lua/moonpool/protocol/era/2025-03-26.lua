-- This revision lacks titles, output schemas, structured content, resource links, lastModified, elicitation, and
-- `_meta` of tools, resources and prompts.

local json = require "moonpool.json"

-- A content block is the script's table, which the script may use again: so a block is copied before it is changed.
local function copy(value)
  local made = {}
  for name, inner in pairs(value) do made[name] = inner end
  return made
end

-- Annotations without lastModified; nil for none.
local function without_date(annotations)
  if not annotations or (annotations.audience == nil and annotations.priority == nil) then return nil end
  return { audience = annotations.audience, priority = annotations.priority }
end

-- The text block that replaces a resource link: its name and its URI.
local function text_of_link(link)
  local name = link.title or link.name
  return { type = "text", text = name == link.uri and link.uri or name .. ": " .. link.uri }
end

local function older_block(block)
  if block.type == "resource_link" then return text_of_link(block) end
  if not (block.annotations and block.annotations.lastModified) then return block end
  local made = copy(block)
  made.annotations = without_date(block.annotations)
  return made
end

local function older_entries(list)
  for _, entry in ipairs(list) do
    entry.title, entry._meta, entry.annotations = nil, nil, without_date(entry.annotations)
  end
end

return {
  from = "2025-06-18",
  has_elicitation = false,
  has_version_header = false,
  has_completion_context = false,
  has_extensions = false,
  result_step = { has_none = true, is_text_alone = true },
  convert_request = { ["elicitation/create"] = false },
  convert_params = {
    ["completion/complete"] = function(params)
      if params.context then params.context = nil end
    end,
  },
  convert_result = {
    initialize = function(result) result.capabilities.extensions = nil end,
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do
        if tool.title then
          tool.annotations = tool.annotations or {}
          tool.annotations.title = tool.title
        end
        tool.title, tool.outputSchema, tool._meta = nil, nil, nil
      end
    end,
    ["tools/call"] = function(result)
      local content = result.content
      if result.structuredContent ~= nil and not content[1] then content[1] = { type = "text", text = json.encode(result.structuredContent) } end
      result.structuredContent = nil
      for i = 1, #content do
        local block = content[i]
        if block.type ~= "text" or block.annotations then content[i] = older_block(block) end
      end
    end,
    ["resources/list"] = function(result) older_entries(result.resources) end,
    ["resources/templates/list"] = function(result) older_entries(result.resourceTemplates) end,
    ["resources/read"] = function(result)
      for _, part in ipairs(result.contents) do part._meta = nil end
    end,
    ["prompts/list"] = function(result)
      older_entries(result.prompts)
      for _, prompt in ipairs(result.prompts) do
        for _, argument in ipairs(prompt.arguments or {}) do argument.title = nil end
      end
    end,
    ["prompts/get"] = function(result)
      for _, message in ipairs(result.messages) do message.content = older_block(message.content) end
    end,
  },
}
