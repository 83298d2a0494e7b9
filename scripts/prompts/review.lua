return prompt {
  "Review a change as a kind, exact colleague.",
  args = {
    language = t.string { "What it is written in", complete = { "c", "go", "java", "javascript", "lua", "python", "rust", "typescript" } },
    diff = t.string "A unified diff",
    focus = t.one_of { "bugs", "clarity", "speed", default = "bugs" },
  },
  function(args)
    return {
      user("Review this " .. args.language .. " change. Look for " .. args.focus .. " first, quote the lines you mean, and say what you would " ..
        "write instead.\n\n" .. args.diff),
    }
  end,
}
