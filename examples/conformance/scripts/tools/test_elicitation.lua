return tool {
  "Ask the user for a name and an address.",
  input = { message = t.string "What to ask" },
  function(args, call)
    local user, why = call:elicit("user", args.message, { username = t.string "Your name", email = t.string "Your address" })
    return "User response: " .. (user and json.encode(user) or why)
  end,
}
