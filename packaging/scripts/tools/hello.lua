-- A first tool. Others go beside it, resources into ../resources, prompts into ../prompts: moonpool new tool NAME writes one.
return tool {
  "Greet somebody by name.",
  input = { name = t.string { "Who is greeted", max = 100 } },
  function(args) return "Hello, " .. args.name .. "!" end,
}
