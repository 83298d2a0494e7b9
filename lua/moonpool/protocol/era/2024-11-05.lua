-- The first revision: without audio content, tool annotations and a capability for completions; over HTTP it has the
-- transport HTTP+SSE.

-- The embedded resource that replaces an audio block, the i-th block of a result.
local function resource_of_audio(block, i)
  return {
    type = "resource", annotations = block.annotations,
    resource = { uri = "moonpool:audio/" .. i, mimeType = block.mimeType, blob = block.data },
  }
end

return {
  transport = "http_sse",
  from = "2025-03-26",
  convert_result = {
    initialize = function(result) result.capabilities.completions = nil end,
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do tool.annotations = nil end
    end,
    ["tools/call"] = function(result)
      local content = result.content
      for i = 1, #content do
        if content[i].type == "audio" then content[i] = resource_of_audio(content[i], i) end
      end
    end,
    ["prompts/get"] = function(result)
      for i, message in ipairs(result.messages) do
        if message.content.type == "audio" then message.content = resource_of_audio(message.content, i) end
      end
    end,
  },
}
