return tool {
  "Greet whoever is there, once we know who it is.",
  function(_, call)
    local user = try(call:elicit("user_name", "What is your name?", { name = t.string }))
    return "Hello, " .. user.name .. "!"
  end,
}
