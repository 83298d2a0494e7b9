-- The methods of each revision, as the unions of its schema name them: requests and notifications of the client and of
-- the server; in 2026-07-28 a server asks by `input_requests` in its results. spec/gateway/matrix/coverage_spec.lua
-- compares them with the schemas, where those are at hand.
local methods = {}

methods["2024-11-05"] = {
  client_requests = {
    "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list", "resources/list", "resources/read",
    "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "tools/call", "tools/list",
  },
  server_requests = {
    "ping", "roots/list", "sampling/createMessage",
  },
  client_notifications = {
    "notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
  },
  server_notifications = {
    "notifications/cancelled", "notifications/message", "notifications/progress", "notifications/prompts/list_changed",
    "notifications/resources/list_changed", "notifications/resources/updated", "notifications/tools/list_changed",
  },
}

methods["2025-03-26"] = {
  client_requests = {
    "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list", "resources/list", "resources/read",
    "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "tools/call", "tools/list",
  },
  server_requests = {
    "ping", "roots/list", "sampling/createMessage",
  },
  client_notifications = {
    "notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
  },
  server_notifications = {
    "notifications/cancelled", "notifications/message", "notifications/progress", "notifications/prompts/list_changed",
    "notifications/resources/list_changed", "notifications/resources/updated", "notifications/tools/list_changed",
  },
}

methods["2025-06-18"] = {
  client_requests = {
    "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list", "resources/list", "resources/read",
    "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "tools/call", "tools/list",
  },
  server_requests = {
    "elicitation/create", "ping", "roots/list", "sampling/createMessage",
  },
  client_notifications = {
    "notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
  },
  server_notifications = {
    "notifications/cancelled", "notifications/message", "notifications/progress", "notifications/prompts/list_changed",
    "notifications/resources/list_changed", "notifications/resources/updated", "notifications/tools/list_changed",
  },
}

methods["2025-11-25"] = {
  client_requests = {
    "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list", "resources/list", "resources/read",
    "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "tasks/cancel", "tasks/get", "tasks/list", "tasks/result",
    "tools/call", "tools/list",
  },
  server_requests = {
    "elicitation/create", "ping", "roots/list", "sampling/createMessage", "tasks/cancel", "tasks/get", "tasks/list", "tasks/result",
  },
  client_notifications = {
    "notifications/cancelled", "notifications/initialized", "notifications/progress", "notifications/roots/list_changed",
    "notifications/tasks/status",
  },
  server_notifications = {
    "notifications/cancelled", "notifications/elicitation/complete", "notifications/message", "notifications/progress",
    "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated",
    "notifications/tasks/status", "notifications/tools/list_changed",
  },
}

methods["2026-07-28"] = {
  client_requests = {
    "completion/complete", "prompts/get", "prompts/list", "resources/list", "resources/read", "resources/templates/list",
    "server/discover", "subscriptions/listen", "tools/call", "tools/list",
  },
  client_notifications = {
    "notifications/cancelled",
  },
  server_notifications = {
    "notifications/cancelled", "notifications/message", "notifications/progress", "notifications/prompts/list_changed",
    "notifications/resources/list_changed", "notifications/resources/updated", "notifications/subscriptions/acknowledged",
    "notifications/tools/list_changed",
  },
  input_requests = {
    "elicitation/create", "roots/list", "sampling/createMessage",
  },
}

return methods
