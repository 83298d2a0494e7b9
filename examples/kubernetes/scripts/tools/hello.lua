return tool {
  "Greet the caller.",
  function(_, call) return "Hello, " .. call.principal.id .. "!" end,
}
