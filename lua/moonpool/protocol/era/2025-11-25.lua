-- The newest revision with sessions. A client subscribes to single resources, and asks in each call whether it becomes a task.
-- Results have no resultType and no lifetime; structured results are objects (T-9).

local function is_json_object(text) return text and text:byte() == ("{"):byte() end

return {
  from = "2026-07-28",
  missing_capability = "result",
  resource_not_found = "resource_not_found",      -- (R-2)
  tasks = "params",                               -- the rule TA-1
  methods = {
    initialize = true, ping = true, ["logging/setLevel"] = true, ["server/discover"] = false,
    ["resources/subscribe"] = true, ["resources/unsubscribe"] = true, ["subscriptions/listen"] = false,
    ["tasks/result"] = true, ["tasks/list"] = true, ["tasks/update"] = false,
  },
  convert_request = {
    -- The page has an id, which notifications/elicitation/complete names later (EL-4).
    ["elicitation/create"] = function(params)
      if params.mode ~= "url" then return params end
      local id = require("moonpool.host").random.bytes(16):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
      return { mode = "url", message = params.message, url = params.url, elicitationId = id }
    end,
  },
  convert_result = {
    ["*"] = function(result)
      result.resultType, result.ttlMs, result.cacheScope, result._meta = nil, nil, nil, nil
    end,
    ["tools/list"] = function(result, tools)
      for _, tool in ipairs(result.tools) do
        if tool.outputSchema and tool.outputSchema.type ~= "object" then tool.outputSchema = nil end
        local task = tools[tool.name].task
        if task then tool.execution = { taskSupport = task } end                       -- (T-13)
      end
    end,
    ["tools/call"] = function(result)
      -- The first text block of the content repeats the structured result as JSON.
      if result.structuredContent and not is_json_object(result.content[1].text) then result.structuredContent = nil end
    end,
  },
}
