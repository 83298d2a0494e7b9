-- Every feature of the protocol that the matrix proves, with the methods of the schemas that it uses, and where it is
-- expected. spec/gateway/matrix/GROUP_spec.lua checks the features of a group.
--   { "name", group = , methods = { … }, since = "2025-06-18", until_ = "2025-11-25", … }
-- `since`, `until_`: the revisions that have it; a cell is expected to be whole if the older of the client's revision and
-- the upstream's has it; by `by_upstream` if the upstream's alone has it, by `by_client` if the client's has it; `never`: the
-- gateway refuses it always; `by_session`: it needs a session or program of the client's own, or 2026-07-28. `once`: it
-- concerns the client and no upstream: one cell for each client.
-- What is expected otherwise is said by `otherwise`: "refused" or "converted", which the check of the feature proves.
local features = {}

features.all = {
  -- lists
  { "tools are listed with all their members", group = "lists", methods = { "tools/list" } },
  { "prompts are listed with all their members", group = "lists", methods = { "prompts/list" } },
  { "resources are listed with all their members", group = "lists", methods = { "resources/list" } },
  { "templates are listed with all their members", group = "lists", methods = { "resources/templates/list" } },
  { "pages of a list have each entry once", group = "lists", methods = { "tools/list", "prompts/list" } },
  { "instructions are passed on", group = "lists", methods = { "initialize", "server/discover" } },
  { "the upstream is opened in its revision", group = "lists", methods = { "initialize", "notifications/initialized", "server/discover" } },
  { "the client pings", group = "lists", methods = { "ping" }, until_ = "2025-11-25", once = true, otherwise = "refused" },
  -- calls
  { "arguments and text", group = "calls", methods = { "tools/call" } },
  { "structured content", group = "calls", methods = { "tools/call" }, since = "2025-06-18", otherwise = "converted" },
  { "a result with isError", group = "calls", methods = { "tools/call" } },
  { "an error with data", group = "calls", methods = { "tools/call" } },
  { "an unknown tool", group = "calls", methods = { "tools/call" } },
  { "_meta of a request and of a result", group = "calls", methods = { "tools/call" } },
  { "members of params that no revision has", group = "calls", methods = { "tools/call" } },
  { "text with annotations", group = "calls", methods = { "tools/call" } },
  { "an image", group = "calls", methods = { "tools/call" } },
  { "an embedded resource", group = "calls", methods = { "tools/call" } },
  { "audio", group = "calls", methods = { "tools/call" }, since = "2025-03-26", otherwise = "converted" },
  { "a link to a resource", group = "calls", methods = { "tools/call" }, since = "2025-06-18", otherwise = "converted" },
  { "a prompt with arguments", group = "calls", methods = { "prompts/get" } },
  { "a prompt that lacks an argument", group = "calls", methods = { "prompts/get" } },
  { "an unknown prompt", group = "calls", methods = { "prompts/get" } },
  { "a resource of text", group = "calls", methods = { "resources/read" } },
  { "a resource of bytes", group = "calls", methods = { "resources/read" } },
  { "a resource of a template", group = "calls", methods = { "resources/read" } },
  { "a resource that is missing", group = "calls", methods = { "resources/read" } },
  { "completion of an argument of a prompt", group = "calls", methods = { "completion/complete" } },
  { "completion of a part of a URI", group = "calls", methods = { "completion/complete" } },
  { "completion with a context", group = "calls", methods = { "completion/complete" }, since = "2025-06-18", otherwise = "refused" },
  -- messages beside the answer
  { "progress", group = "messages", methods = { "notifications/progress" } },
  { "log messages", group = "messages", methods = { "notifications/message" } },
  { "the level of log messages", group = "messages", methods = { "logging/setLevel", "notifications/message" } },
  { "notes and the answer in their order", group = "messages", methods = { "notifications/progress", "notifications/message" } },
  { "the client cancels", group = "messages", methods = { "notifications/cancelled" } },
  { "the upstream pings", group = "messages", methods = { "ping" }, until_ = "2025-11-25", by_upstream = true, otherwise = "refused" },
  -- questions
  { "a form", group = "questions", by_session = true, methods = { "elicitation/create" }, since = "2025-06-18", by_client = true, otherwise = "refused" },
  { "a form that is declined", group = "questions", by_session = true,
    methods = { "elicitation/create" }, since = "2025-06-18", by_client = true, otherwise = "refused" },
  { "a page to open", group = "questions", by_session = true,
    methods = { "elicitation/create" }, since = "2025-11-25", by_client = true, otherwise = "refused" },
  { "that a page is done", group = "questions", by_session = true, by_client = true,
    methods = { "notifications/elicitation/complete" }, since = "2025-11-25", until_ = "2025-11-25",
    otherwise = "refused" },
  { "sampling", group = "questions", by_session = true, methods = { "sampling/createMessage" }, otherwise = "refused" },
  { "sampling with tools", group = "questions", by_session = true, methods = { "sampling/createMessage" }, since = "2025-11-25", by_client = true,
    otherwise = "refused" },
  { "a question that another principal answers", group = "questions", by_session = true, methods = { "sampling/createMessage" }, otherwise = "refused" },
  { "a prompt that asks", group = "questions", by_session = true, methods = { "prompts/get", "sampling/createMessage" }, otherwise = "refused" },
  { "a resource that asks", group = "questions", by_session = true, methods = { "resources/read", "sampling/createMessage" }, otherwise = "refused" },
  { "sampling that fails", group = "questions", by_session = true, methods = { "sampling/createMessage" }, otherwise = "refused" },
  { "roots", group = "questions", by_session = true, methods = { "roots/list" }, otherwise = "refused" },
  { "roots that change", group = "questions", by_session = true,
    methods = { "notifications/roots/list_changed", "roots/list" }, until_ = "2025-11-25", otherwise = "refused" },
  { "a question that is taken back", group = "questions", by_session = true,
    methods = { "notifications/cancelled" }, until_ = "2025-11-25", otherwise = "refused" },
  { "progress of the client", group = "questions", methods = { "notifications/progress" }, never = true, otherwise = "refused" },
  { "tasks of the client", group = "questions", by_session = true,
    methods = { "tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "notifications/tasks/status", otherwise = "refused" },
    never = true, otherwise = "refused" },
  -- changes
  { "tools that change", group = "changes", methods = { "notifications/tools/list_changed", "subscriptions/listen" } },
  { "prompts that change", group = "changes", methods = { "notifications/prompts/list_changed", "subscriptions/listen" } },
  { "resources that change", group = "changes", methods = { "notifications/resources/list_changed", "subscriptions/listen" } },
  { "a resource that is subscribed to", group = "changes", by_session = true, otherwise = "refused", methods = {
    "resources/subscribe", "notifications/resources/updated", "resources/unsubscribe", "subscriptions/listen", "notifications/subscriptions/acknowledged",
  } },
  -- what belongs to one client
  { "what an upstream keeps in a session", group = "sessions", methods = { "tools/call" }, until_ = "2025-11-25", by_upstream = true, by_session = true,
    otherwise = "refused" },
  { "a list of a session", group = "sessions", methods = { "tools/list", "notifications/tools/list_changed" }, until_ = "2025-11-25", by_upstream = true,
    by_session = true, otherwise = "refused" },
  { "the stream of a call is resumed", group = "sessions", methods = { "tools/call", "notifications/progress" }, since = "2024-11-05",
    until_ = "2025-11-25", by_client = true, otherwise = "refused" },
  { "the end of a session", group = "sessions", methods = { "initialize" }, until_ = "2025-11-25", by_session = true, otherwise = "refused" },
  -- tasks
  { "a call of a tool that may run as a task", group = "tasks", methods = { "tools/call" } },
  { "a task of the client", group = "tasks", since = "2025-11-25", until_ = "2025-11-25", otherwise = "refused", methods = {
    "tools/call", "tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "notifications/tasks/status",
  } },
  { "a task of the extension", group = "tasks", methods = { "tools/call" }, since = "2026-07-28", by_client = true, otherwise = "refused" },
  -- results of 8 MiB
  { "a result of 8 MiB", group = "large", methods = { "tools/call" } },
  { "a result of 8 MiB after a note", group = "large", methods = { "tools/call", "notifications/progress" } },
}

local by_name = {}
for _, feature in ipairs(features.all) do by_name[feature[1]] = feature end

function features.of(name) return assert(by_name[name], "no such feature: " .. tostring(name)) end

--- True if a revision has a feature.
function features.has(feature, revision) return revision >= (feature.since or "") and revision <= (feature.until_ or "9") end

--- What a cell is expected to be: "whole", or what the feature says otherwise. `serves`: nil for those that concern no
--- upstream, "none" for one that keeps nothing.
function features.expected(feature, asks, serves)
  if serves == "none" then return feature.otherwise end
  local is_asked, is_served = feature.by_upstream or features.has(feature, asks), feature.by_client or not serves or features.has(feature, serves)
  if is_asked and is_served and not feature.never then return "whole" end
  return assert(feature.otherwise, feature[1])
end

--- The number of cells of a feature.
function features.cells(feature, clients, forms) return feature.once and clients or clients * forms end

--- The number of cells of a group, or of all.
function features.total(group, clients, forms)
  local total = 0
  for _, feature in ipairs(features.all) do
    if not group or feature.group == group then total = total + features.cells(feature, clients, forms) end
  end
  return total
end

return features
