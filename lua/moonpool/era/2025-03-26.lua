-- No titles, no output schemas, no structured content, no links, no times of change, no `_meta` of things.

-- A block is the script's own table and may be used again: what changes is a copy.
local function copy(value)
  local made = {}
  for name, inner in pairs(value) do made[name] = inner end
  return made
end

local function undated(annotations)
  if not annotations or (annotations.audience == nil and annotations.priority == nil) then return nil end
  return { audience = annotations.audience, priority = annotations.priority }
end

-- A link as words: its name and where it leads.
local function told(link)
  local name = link.title or link.name
  return { type = "text", text = name == link.uri and link.uri or name .. ": " .. link.uri }
end

local function block_down(block)
  if block.type == "resource_link" then return told(block) end
  if not (block.annotations and block.annotations.lastModified) then return block end
  local made = copy(block)
  made.annotations = undated(block.annotations)
  return made
end

local function entries_down(list)
  for _, entry in ipairs(list) do
    entry.title, entry._meta, entry.annotations = nil, nil, undated(entry.annotations)
  end
end

return {
  date = "2025-03-26", newer = "2025-06-18",
  asks_down = { ["elicitation/create"] = false },
  params_up = {
    ["completion/complete"] = function(params)
      if params.context then params.context = nil end
    end,
  },
  result_down = {
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
      result.structuredContent = nil
      local content = result.content
      for i = 1, #content do
        local block = content[i]
        if block.type ~= "text" or block.annotations then content[i] = block_down(block) end
      end
    end,
    ["resources/list"] = function(result) entries_down(result.resources) end,
    ["resources/templates/list"] = function(result) entries_down(result.resourceTemplates) end,
    ["resources/read"] = function(result)
      for _, part in ipairs(result.contents) do part._meta = nil end
    end,
    ["prompts/list"] = function(result)
      entries_down(result.prompts)
      for _, prompt in ipairs(result.prompts) do
        for _, argument in ipairs(prompt.arguments or {}) do argument.title = nil end
      end
    end,
    ["prompts/get"] = function(result)
      for _, message in ipairs(result.messages) do message.content = block_down(message.content) end
    end,
  },
}
