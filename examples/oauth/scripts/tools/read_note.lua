return tool {
  "Read a note of yours.",
  input = { name = t.string },
  scopes = { "notes:read" }, read_only = true,
  function(args, call) return store.get(call.principal.id .. "/" .. args.name) or "nothing is noted" end,
}
