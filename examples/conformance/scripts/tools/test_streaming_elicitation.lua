return tool {
  "Ask the user whether to go on.",
  requires = { "elicitation" },
  function(_, call)
    local user, why = call:elicit("go_on", "Go on?", { yes = t.boolean })
    return user and "Gone on: " .. tostring(user.yes) or why
  end,
}
