return prompt {
  "A prompt that asks what it is about.",
  function(_, call)
    local about = try(call:elicit("user_context", "What is it about?", { context = t.string }))
    return { user("Let us talk about " .. about.context) }
  end,
}
