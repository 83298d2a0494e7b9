-- The newest revision: stateless, and the language of the house.
return {
  date = "2026-07-28",
  methods = {
    ["server/discover"] = true, ["tools/list"] = true, ["tools/call"] = true,
    ["resources/list"] = true, ["resources/templates/list"] = true, ["resources/read"] = true,
    ["prompts/list"] = true, ["prompts/get"] = true, ["completion/complete"] = true,
    ["subscriptions/listen"] = true, ["tasks/get"] = true, ["tasks/update"] = true, ["tasks/cancel"] = true,
  },
  stateless = true,
  invalid_arguments = "result",       -- T-5: the model reads what is wrong
  missing_capability = "error",       -- -32021
  resource_not_found = "invalid_params",
  tasks = "extension",                -- TX-1
}
