-- No titles, no output schemas, no structured content, no links.

-- A block is the script's own table and may be used again: what changes is a copy.
local function undated(block)
  local copy = {}
  for name, value in pairs(block) do copy[name] = value end
  copy.annotations = { audience = block.annotations.audience, priority = block.annotations.priority }
  if next(copy.annotations) == nil then copy.annotations = nil end
  return copy
end

-- A link as words: its name and where it leads.
local function told(link)
  local name = link.title or link.name
  return { type = "text", text = name == link.uri and link.uri or name .. ": " .. link.uri }
end

return {
  date = "2025-03-26", newer = "2025-06-18",
  result_down = {
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do
        if tool.title then
          tool.annotations = tool.annotations or {}
          tool.annotations.title = tool.title
        end
        tool.title, tool.outputSchema = nil, nil
      end
    end,
    ["tools/call"] = function(result)
      result.structuredContent = nil
      local content = result.content
      for i = 1, #content do
        local block = content[i]
        if block.type == "resource_link" then
          content[i] = told(block)
        elseif block.annotations and block.annotations.lastModified then
          content[i] = undated(block)
        end
      end
    end,
  },
}
