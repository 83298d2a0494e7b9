-- Opens with initialize; follows single resources, and asks for tasks call by call; results say neither their type nor how
-- long they keep; structured results are objects (T-9).

local host = require "moonpool.host"
local registry = require "moonpool.registry"

local function is_object(raw_text) return raw_text and raw_text:byte() == 123 end

return {
  date = "2025-11-25", newer = "2026-07-28",
  stateless = false,
  missing_capability = "result",
  resource_not_found = "resource_not_found",      -- R-2: -32002
  tasks = "params",                               -- TA-1
  methods = {
    initialize = true, ping = true, ["logging/setLevel"] = true, ["server/discover"] = false,
    ["resources/subscribe"] = true, ["resources/unsubscribe"] = true, ["subscriptions/listen"] = false,
    ["tasks/result"] = true, ["tasks/list"] = true, ["tasks/update"] = false,
  },
  asks_down = {
    -- a page has a name here, for the word that it is done (EL-4)
    ["elicitation/create"] = function(params)
      if params.mode ~= "url" then return params end
      local id = host.random(16):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
      return { mode = "url", message = params.message, url = params.url, elicitationId = id }
    end,
  },
  result_down = {
    ["*"] = function(result)
      result.resultType, result.ttlMs, result.cacheScope, result._meta = nil, nil, nil, nil
    end,
    ["tools/list"] = function(result)
      for _, tool in ipairs(result.tools) do
        if tool.outputSchema and tool.outputSchema.type ~= "object" then tool.outputSchema = nil end
        local task = registry.tools[tool.name].task
        if task then tool.execution = { taskSupport = task } end                       -- T-13
      end
    end,
    ["tools/call"] = function(result)
      -- the text beside it is the same JSON
      if result.structuredContent and not is_object(result.content[1].text) then result.structuredContent = nil end
    end,
  },
}
