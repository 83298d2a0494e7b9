-- The first revision: no sound, no hints about tools, and nobody says that there are completions.

local function of_sound(block, i)
  return {
    type = "resource", annotations = block.annotations,
    resource = { uri = "moonpool:audio/" .. i, mimeType = block.mimeType, blob = block.data },
  }
end

return {
  date = "2024-11-05", newer = "2025-03-26",
  result_down = {
    initialize = function(result) result.capabilities.completions = nil end,
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do tool.annotations = nil end
    end,
    ["tools/call"] = function(result)
      local content = result.content
      for i = 1, #content do
        if content[i].type == "audio" then content[i] = of_sound(content[i], i) end
      end
    end,
    ["prompts/get"] = function(result)
      for i, message in ipairs(result.messages) do
        if message.content.type == "audio" then message.content = of_sound(message.content, i) end
      end
    end,
  },
}
