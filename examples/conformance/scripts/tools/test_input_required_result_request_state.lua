return tool {
  "Ask for a yes, and remember having asked.",
  function(_, call)
    call:once("asked", function() return true end)
    local user = try(call:elicit("confirm", "Sure?", { ok = t.boolean }))
    return "state-ok: " .. tostring(user.ok)
  end,
}
