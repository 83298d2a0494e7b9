return tool {
  "Greet somebody.",
  input = { name = t.string "Whom" },
  function(args) return "Hello, " .. args.name .. "!" end,
}
