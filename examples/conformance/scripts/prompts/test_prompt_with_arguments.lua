return prompt {
  "Has two arguments.",
  args = {
    arg1 = t.string { "The first", complete = { "test", "testValue1", "other" } },
    arg2 = t.string "The second",
  },
  function(args) return ("Prompt with arguments: arg1='%s', arg2='%s'"):format(args.arg1, args.arg2) end,
}
