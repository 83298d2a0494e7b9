-- The newest revision: stateless, and the language of the house.
return {
  date = "2026-07-28",
  methods = { ["server/discover"] = true, ["tools/list"] = true, ["tools/call"] = true },
  stateless = true,
  invalid_arguments = "result",       -- T-5: the model reads what is wrong
  missing_capability = "error",       -- -32021
}
