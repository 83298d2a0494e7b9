-- The requests, notifications and capabilities that the revisions of MCP define, with sender and revisions. A row that
-- is not served has the reason. features.lua makes docs/reference/features.md from these rows.
--   { kind, who, name, revisions[, on = transports][, reason = why not] }

local LEGACY <const> = "2024-11-05..2025-11-25"
local ALL <const> = "2024-11-05.."

local surface = {}

local function add(kind, who, revisions, names, more)
  for name in names:gmatch "%S+" do
    local row = { kind = kind, who = who, name = name, revisions = revisions }
    for key, value in pairs(more or {}) do row[key] = value end
    table.insert(surface, row)
  end
end

-- Offered only to principals, which exist only over HTTP.
local named_only = { on = "http" }
local no_client_tasks = { reason = "moonpool sends its requests to clients without `task`, and declares no task capability for them" }

add("request", "client", LEGACY, "initialize ping")
add("request", "client", "2026-07-28", "server/discover")
add("request", "client", ALL, "tools/list tools/call resources/list resources/templates/list resources/read")
add("request", "client", LEGACY, "resources/subscribe resources/unsubscribe")
add("request", "client", ALL, "prompts/list prompts/get completion/complete")
add("request", "client", LEGACY, "logging/setLevel")
add("request", "client", "2026-07-28", "subscriptions/listen")
add("request", "client", "2025-11-25..", "tasks/get tasks/cancel")
add("request", "client", "2025-11-25", "tasks/result")
add("request", "client", "2025-11-25", "tasks/list", named_only)
add("request", "client", "2026-07-28", "tasks/update")

add("request", "server", LEGACY, "ping", { reason = "the transport reports at once that a client has left, so the server sends no ping" })
add("request", "server", ALL, "sampling/createMessage roots/list")
add("request", "server", "2025-06-18..", "elicitation/create")
add("request", "server", "2025-11-25", "tasks/get tasks/result tasks/list tasks/cancel", no_client_tasks)

add("notification", "client", LEGACY, "notifications/initialized notifications/roots/list_changed")
add("notification", "client", LEGACY, "notifications/cancelled notifications/progress")
add("notification", "client", "2026-07-28", "notifications/cancelled", { on = "stdio" })
add("notification", "client", "2025-11-25", "notifications/tasks/status", no_client_tasks)

add("notification", "server", LEGACY, "notifications/cancelled")
add("notification", "server", "2026-07-28", "notifications/cancelled", { on = "stdio" })
add("notification", "server", ALL, "notifications/progress notifications/message")
add("notification", "server", ALL, "notifications/tools/list_changed notifications/prompts/list_changed")
add("notification", "server", ALL, "notifications/resources/list_changed notifications/resources/updated")
add("notification", "server", "2025-11-25", "notifications/elicitation/complete notifications/tasks/status")
add("notification", "server", "2026-07-28", "notifications/subscriptions/acknowledged notifications/tasks")

add("capability", "server", ALL, "tools prompts resources logging")
add("capability", "server", ALL, "tools.listChanged prompts.listChanged resources.listChanged resources.subscribe")
add("capability", "server", ALL, "experimental", { reason = "nothing experimental is offered" })
add("capability", "server", "2025-03-26..", "completions")
add("capability", "server", "2025-11-25", "tasks tasks.cancel tasks.requests.tools.call")
add("capability", "server", "2025-11-25", "tasks.list", named_only)
add("capability", "server", "2025-06-18..", "extensions")

add("capability", "client", ALL, "roots")
add("capability", "client", LEGACY, "roots.listChanged")
add("capability", "client", ALL, "sampling")
add("capability", "client", "2025-11-25..", "sampling.context sampling.tools")
add("capability", "client", "2025-06-18..", "elicitation")
add("capability", "client", "2025-11-25..", "elicitation.form")
add("capability", "client", "2025-11-25..", "elicitation.url")
add("capability", "client", "2025-11-25", "tasks tasks.list tasks.cancel tasks.requests.elicitation.create tasks.requests.sampling.createMessage",
  no_client_tasks)
add("capability", "client", "2025-06-18..", "extensions")

return surface
