-- The base revision: handlers get its params and return its results.
return {
  methods = {
    ["server/discover"] = true, ["tools/list"] = true, ["tools/call"] = true,
    ["resources/list"] = true, ["resources/templates/list"] = true, ["resources/read"] = true,
    ["prompts/list"] = true, ["prompts/get"] = true, ["completion/complete"] = true,
    ["subscriptions/listen"] = true, ["tasks/get"] = true, ["tasks/update"] = true, ["tasks/cancel"] = true,
  },
  transport = "streamable_http",
  invalid_arguments = "result",       -- invalid arguments give a result with isError, so that the model reads the error (T-5)
  missing_capability = "error",       -- a request that needs a missing capability gets a JSON-RPC error
  resource_not_found = "invalid_params",
  tasks = "extension",                -- the client declares tasks as an extension (TX-1)
  has_elicitation = true,
  has_elicitation_modes = true,       -- clients declare elicitation.form and elicitation.url separately
  has_sampling_context = true,        -- clients declare sampling.context
  has_extensions = true,              -- capabilities have `extensions`
  has_completion_context = true,      -- completion/complete has params.context
  result_step = { is_base = true },   -- of tools/call, as core/lib/shortcut/forward.h applies it to the result of an upstream
  has_version_header = true,          -- requests over HTTP have MCP-Protocol-Version
}
