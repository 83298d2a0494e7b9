-- The newest revision with sessions. A client subscribes to single resources, and asks in each call whether it becomes
-- a task.
-- Results have no resultType and no lifetime; structured results are objects (T-9).

local json = require "moonpool.json"

local function is_json_object(text) return text and text:byte() == ("{"):byte() end

local server_key = "io.modelcontextprotocol/serverInfo"

-- The `_meta` of a result without the member that revisions without sessions add (N-4); nil if there is no other. That
-- of a result of a script is JSON with this member alone.
local function without_server(meta)
  if type(meta) ~= "table" or meta[server_key] == nil then return nil end
  meta[server_key] = nil
  return next(meta) ~= nil and meta or nil
end

-- Changes properties that are booleans, which this revision lacks, to schemas that mean the same. A schema of a script is
-- shared by all clients: so what changes is copied.
local function without_booleans(schema)
  local made
  for name, one in pairs(schema.properties or {}) do
    if type(one) == "boolean" then
      if not made then
        made = setmetatable({}, debug.getmetatable(schema.properties))
        for key, value in pairs(schema.properties) do made[key] = value end
      end
      made[name] = one and json.object {} or { ["not"] = json.object {} }
    end
  end
  if not made then return schema end
  local copy = setmetatable({}, debug.getmetatable(schema))
  for name, value in pairs(schema) do copy[name] = value end
  copy.properties = made
  return copy
end

-- True if a structured result is an object. A script's is JSON text, which the first text block repeats; that of an
-- upstream is a table.
local function is_structured_object(result)
  local value, first = result.structuredContent, result.content[1]
  local mt = debug.getmetatable(value)
  if type(value) == "table" and (mt == nil or mt == json.object_mt) then return true end
  if mt == json.array_mt or value == json.null or type(value) == "string" or type(value) == "number" or type(value) == "boolean" then return false end
  return first ~= nil and is_json_object(first.text)
end

return {
  from = "2026-07-28",
  missing_capability = "result",
  resource_not_found = "resource_not_found",      -- the error of a resource that does not exist has a code of its own (R-2)
  result_step = { has_objects = true },           -- core/lib/shortcut/forward.h does what convert_result does to a plain result of an upstream
  tasks = "params",                               -- a call asks for a task by `task` in its params (TA-1)
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
      result.resultType, result.ttlMs, result.cacheScope = nil, nil, nil
      result._meta = without_server(result._meta)
    end,
    ["tools/list"] = function(result, tools)
      for _, tool in ipairs(result.tools) do
        if tool.outputSchema and tool.outputSchema.type ~= "object" then tool.outputSchema = nil end
        tool.inputSchema = without_booleans(tool.inputSchema)
        if tool.outputSchema then tool.outputSchema = without_booleans(tool.outputSchema) end
        local task = tools[tool.name].task
        if task then tool.execution = { taskSupport = task } end                       -- whether the tool may or must run as a task (T-13)
      end
    end,
    ["tools/call"] = function(result)
      if result.structuredContent == nil or is_structured_object(result) then return end
      if not result.content[1] then result.content[1] = { type = "text", text = json.encode(result.structuredContent) } end
      result.structuredContent = nil
    end,
  },
}
