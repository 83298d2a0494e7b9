return tool {
  "Write a note of yours.",
  input = { name = t.string, text = t.string { max = 1000 } },
  scopes = { "notes:write" },
  function(args, call)
    try(store.set(call.principal.id .. "/" .. args.name, args.text))
    return "noted"
  end,
}
