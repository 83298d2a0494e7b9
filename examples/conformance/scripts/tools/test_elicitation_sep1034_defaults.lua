return tool {
  "Ask for values that have defaults.",
  function(_, call)
    local user, why = call:elicit("profile", "Is this right?", {
      name = t.string { default = "John Doe" }, age = t.integer { default = 30 }, score = t.number { default = 95.5 },
      status = t.one_of { "active", "inactive", "pending", default = "active" }, verified = t.boolean { default = true },
    })
    return "Elicitation completed: " .. (user and json.encode(user) or why)
  end,
}
