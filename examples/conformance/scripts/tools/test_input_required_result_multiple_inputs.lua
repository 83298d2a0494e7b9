return tool {
  "Ask three things at once.",
  function(_, call)
    local said, whys = call:ask {
      user_name = ask.elicit("What is your name?", { name = t.string }),
      greeting = ask.sample "Say hello.",
      client_roots = ask.roots(),
    }
    try(said.user_name, whys.user_name)
    try(said.greeting, whys.greeting)
    return said.greeting.content.text .. " " .. said.user_name.name .. ", with " .. #try(said.client_roots, whys.client_roots) .. " roots"
  end,
}
