-- The official schema of each revision, from the folder ../shared/schema beside the repository, and a check of messages
-- that a server sends: a result must fit the definition of its method's result, a request or notification its own
-- definition, and every message the envelope. Our own validator checks them, which the JSON Schema test suite proves.
--   local official, why = require "spec.helpers.official"()    nil if the schemas or the C modules do not exist
--   official.complaint("2025-11-25", message, "tools/list")    nil if the message fits; `message` as library.json decodes it

local FOLDER = "../shared/schema"

local RESULTS = {
  ["initialize"] = "InitializeResult", ["ping"] = "EmptyResult", ["server/discover"] = "DiscoverResult",
  ["tools/list"] = "ListToolsResult", ["tools/call"] = "CallToolResult",
  ["resources/list"] = "ListResourcesResult", ["resources/templates/list"] = "ListResourceTemplatesResult",
  ["resources/read"] = "ReadResourceResult", ["resources/subscribe"] = "EmptyResult", ["resources/unsubscribe"] = "EmptyResult",
  ["prompts/list"] = "ListPromptsResult", ["prompts/get"] = "GetPromptResult", ["completion/complete"] = "CompleteResult",
  ["logging/setLevel"] = "EmptyResult", ["subscriptions/listen"] = "SubscriptionsListenResult",
  ["tasks/get"] = "GetTaskResult", ["tasks/result"] = "GetTaskPayloadResult", ["tasks/list"] = "ListTasksResult",
  ["tasks/cancel"] = "CancelTaskResult",
}

-- Errors that have a definition of their own.
local ERRORS = {
  [-32020] = "HeaderMismatchError", [-32021] = "MissingRequiredClientCapabilityError", [-32022] = "UnsupportedProtocolVersionError",
  [-32042] = "URLElicitationRequiredError",
}

-- No revision's schema contains the tasks extension of 2026-07-28.
local TASK = {
  type = "object", required = { "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs" },
  properties = {
    taskId = { type = "string" }, status = { enum = { "working", "input_required", "completed", "failed", "cancelled" } },
    statusMessage = { type = "string" }, createdAt = { type = "string" }, lastUpdatedAt = { type = "string" },
    ttlMs = { type = { "integer", "null" } }, pollIntervalMs = { type = "integer" },
    inputRequests = { ["$ref"] = "mcp#/$defs/InputRequests" }, result = { ["$ref"] = "mcp#/$defs/CallToolResult" },
    error = { ["$ref"] = "mcp#/$defs/Error" },
  },
}

local EXTENSION = {
  task_notification = {
    type = "object", required = { "jsonrpc", "method", "params" },
    properties = { params = { allOf = { TASK, { ["$ref"] = "mcp#/$defs/NotificationParams" } } } },
  },
  task_created = { allOf = { TASK, { ["$ref"] = "mcp#/$defs/Result" } } },
}

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "a"
  file:close()
  return text
end

local revision_mt = {}
revision_mt.__index = revision_mt

-- Maps methods to definitions, for the members of a union.
local function by_method(self, union)
  local found = {}
  for _, member in ipairs((self.definitions[union] or {}).anyOf or {}) do
    local name = member["$ref"]:match "[^/]+$"
    found[self.definitions[name].properties.method.const] = name
  end
  return found
end

local function open_revision(library, date, text)
  local document = assert(library.json.decode(text))
  local self = setmetatable({ date = date, schema = library.schema, document = document, checks = {} }, revision_mt)
  self.definitions = document["$defs"] or document.definitions
  self.place = document["$defs"] and "mcp#/$defs/" or "mcp#/definitions/"
  local number = self.definitions.NumberSchema -- the schema says integer by mistake: any number is meant
  for _, name in ipairs { "minimum", "maximum", "default" } do
    if number and number.properties[name] then number.properties[name].type = "number" end
  end
  self.notifications, self.requests = by_method(self, "ServerNotification"), by_method(self, "ServerRequest")
  return self
end

-- A document with the definitions alone that `source` leads to: one schema has some hundred, of which a message needs
-- few, and compiling all takes a tenth of a second.
local function document_for(self, source)
  local found, waiting = {}, { source }
  while waiting[1] do
    for key, value in pairs(table.remove(waiting)) do
      local name = key == "$ref" and value:match "[^/]+$"
      if name and not found[name] then
        found[name] = self.definitions[name]
        waiting[#waiting + 1] = found[name]
      elseif type(value) == "table" then
        waiting[#waiting + 1] = value
      end
    end
  end
  return { ["$schema"] = self.document["$schema"], [self.place:match "([^/]+)/$"] = found }
end

-- The error if `value` does not fit a `definition` (or a schema); nil if it fits.
function revision_mt:wrong(definition, value)
  local check = self.checks[definition]
  if not check then
    local source = definition
    if type(definition) == "string" then
      assert(self.definitions[definition], self.date .. " defines no " .. definition)
      source = { ["$ref"] = self.place .. definition }
    end
    check = assert(self.schema.compile(source, { resources = { mcp = document_for(self, source) } }))
    self.checks[definition] = check
  end
  local fits, fault = check(value)
  if fits then return nil end
  local name = type(definition) == "string" and definition or "the tasks extension"
  return ("%s: %s %s"):format(name, fault.path == "" and "it" or fault.path, fault.message)
end

function revision_mt:wrong_error(message)
  local envelope = self.definitions.JSONRPCErrorResponse and "JSONRPCErrorResponse" or "JSONRPCError"
  local code = type(message.error) == "table" and message.error.code
  local told = message
  if message.id == nil and envelope == "JSONRPCError" then -- required before 2025-11-25, but impossible if the id could not be read
    told = { jsonrpc = message.jsonrpc, error = message.error, id = 0 }
  end
  local defined = ERRORS[code] and self.definitions[ERRORS[code]] and ERRORS[code]
  if math.type(code) == "integer" and code <= -32020 and code >= -32099 and not defined then
    return "error code " .. code .. " is the specification's, and not defined"
  end
  return self:wrong(envelope, told) or defined and self:wrong(defined, told)
end

function revision_mt:wrong_result(message, method)
  local envelope = self.definitions.JSONRPCResultResponse and "JSONRPCResultResponse" or "JSONRPCResponse"
  local wrong = self:wrong(envelope, message)
  if wrong then return wrong end
  local result = message.result
  if self.date == "2026-07-28" then
    if result.resultType == "input_required" then
      if result.inputRequests == nil and result.requestState == nil then return "input_required asks for nothing" end
      return self:wrong("InputRequiredResult", result)
    elseif result.resultType == "task" then
      return self:wrong(EXTENSION.task_created, result)
    elseif result.resultType ~= "complete" then
      return "no such resultType: " .. tostring(result.resultType)
    elseif method:find "^tasks/" then
      return method == "tasks/get" and self:wrong(EXTENSION.task_created, result) or nil
    end
  elseif method == "tools/call" and result.task then
    return self:wrong("CreateTaskResult", result)
  elseif method == "tasks/result" then
    method = "tools/call" -- the result type of the call without a task
  end
  return self:wrong(assert(RESULTS[method], method .. " has no result here"), result)
end

function revision_mt:wrong_sent(message)
  local is_request = message.id ~= nil
  local wrong = self:wrong(is_request and "JSONRPCRequest" or "JSONRPCNotification", message)
  if wrong then return wrong end
  if self.date == "2026-07-28" and message.method == "notifications/tasks" then return self:wrong(EXTENSION.task_notification, message) end
  local definition = (is_request and self.requests or self.notifications)[message.method]
  if not definition then return ("no %s of a server's is called %s"):format(is_request and "request" or "notification", message.method) end
  return self:wrong(definition, message)
end

return function()
  local library, why = require "spec.helpers.library"()
  if not library then return nil, why end
  local open = {}
  local official = { json = library.json, revisions = open }

  for _, date in ipairs { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28" } do
    local text = read(FOLDER .. "/" .. date .. ".json")
    if not text then return nil, "no " .. FOLDER .. "/" .. date .. ".json" end
    open[date] = open_revision(library, date, text)
  end

  -- The error in a message that a server of `date` sends; `method` is the method that a response answers.
  function official.complaint(date, message, method)
    local revision = open[date]
    if type(message) ~= "table" then return "no object" end
    if message.method then return revision:wrong_sent(message) end
    if message.error ~= nil and message.result ~= nil then return "both result and error" end
    if message.error ~= nil then return revision:wrong_error(message) end
    if message.result == nil then return "neither result nor error" end
    if not method then return "it answers nothing that was asked" end
    return revision:wrong_result(message, method)
  end

  return official
end
