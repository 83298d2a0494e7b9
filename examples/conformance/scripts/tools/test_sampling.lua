return tool {
  "Ask the client's model, and say what it said.",
  input = { prompt = t.string "What to ask" },
  function(args, call)
    local answer = try(call:sample("prompt", {
      messages = json.array { { role = "user", content = { type = "text", text = args.prompt } } }, maxTokens = 100,
    }))
    return "LLM response: " .. answer.content.text
  end,
}
