return tool {
  "Ask only what this client can be asked.",
  function(_, call)
    local said = call:ask {
      name = ask.elicit("What is your name?", { name = t.string }),
      joke = ask.sample "Tell a joke.",
    }
    return "answered: " .. (said.name and "name " or "") .. (said.joke and "joke" or "")
  end,
}
