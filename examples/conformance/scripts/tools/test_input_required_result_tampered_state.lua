return tool {
  "Ask for a yes; a state that somebody changed is refused before this runs.",
  function(_, call)
    local user = try(call:elicit("confirm", "Sure?", { ok = t.boolean }))
    return "confirmed: " .. tostring(user.ok)
  end,
}
