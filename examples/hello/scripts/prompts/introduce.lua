return prompt {
  "Introduce two people to each other.",
  args = {
    first = t.string "Who is there already",
    second = t.string "Who has just come",
    language = t.one_of { "english", "french", "german", "spanish", default = "english" },
  },
  function(args)
    return { user(("Introduce %s to %s, in %s, in two sentences."):format(args.second, args.first, args.language)) }
  end,
}
