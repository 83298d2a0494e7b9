-- The first revision: no sound, no hints about tools.

return {
  date = "2024-11-05", newer = "2025-03-26",
  result_down = {
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do tool.annotations = nil end
    end,
    ["tools/call"] = function(result)
      local content = result.content
      for i = 1, #content do
        local block = content[i]
        if block.type == "audio" then
          content[i] = {
            type = "resource", annotations = block.annotations,
            resource = { uri = "moonpool:audio/" .. i, mimeType = block.mimeType, blob = block.data },
          }
        end
      end
    end,
  },
}
