-- Language models make mistakes in arithmetic. This tool computes with Lua's 64-bit integers and doubles.
return tool {
  "Work out an arithmetic expression: + - * / % ^, parentheses, and sqrt, abs, floor, ceil, round, min, max, pi.",
  input = { expression = t.string { "As in (3 + 4) * sqrt(2)", max = 1000, examples = { "(3 + 4) * 2" } } },
  read_only = true, open_world = false,
  function(args)
    return require("arithmetic").evaluate(args.expression)
  end,
}
