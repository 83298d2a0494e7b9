return tool {
  "Ask the client's model about France.",
  function(_, call)
    local answer = try(call:sample("capital_question", {
      messages = json.array { { role = "user", content = { type = "text", text = "What is the capital of France?" } } }, maxTokens = 100,
    }))
    return "The model says: " .. answer.content.text
  end,
}
