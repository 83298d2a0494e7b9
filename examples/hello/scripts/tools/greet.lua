local greetings = { english = "Hello", french = "Bonjour", german = "Guten Tag", spanish = "Hola" }

return tool {
  "Greet somebody by name.",
  input = {
    name = t.string { "Whom to greet", min = 1, max = 100 },
    language = t.one_of { "english", "french", "german", "spanish", default = "english" },
  },
  read_only = true,
  function(args)
    return greetings[args.language] .. ", " .. args.name .. "!"
  end,
}
