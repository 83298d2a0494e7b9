return tool {
  "Needs a client that can sample.",
  requires = { "sampling" },
  function() return "The client can sample." end,
}
