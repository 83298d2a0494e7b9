return tool {
  "Fail in a way that is for the client's program, not for its model.",
  task = "required",
  function() fail_request(-32603, "This job ends with a JSON-RPC error on purpose.") end,
}
