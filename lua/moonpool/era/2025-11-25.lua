-- Opens with initialize; results say neither their type nor how long they keep; structured results are objects (T-9).

local function is_object(raw_text) return raw_text and raw_text:byte() == 123 end

return {
  date = "2025-11-25", newer = "2026-07-28",
  stateless = false,
  missing_capability = "result",
  resource_not_found = "resource_not_found",      -- R-2: -32002
  methods = { initialize = true, ping = true, ["logging/setLevel"] = true, ["server/discover"] = false },
  result_down = {
    ["*"] = function(result)
      result.resultType, result.ttlMs, result.cacheScope, result._meta = nil, nil, nil, nil
    end,
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do
        if tool.outputSchema and tool.outputSchema.type ~= "object" then tool.outputSchema = nil end
      end
    end,
    ["tools/call"] = function(result)
      -- the text beside it is the same JSON
      if result.structuredContent and not is_object(result.content[1].text) then result.structuredContent = nil end
    end,
  },
}
