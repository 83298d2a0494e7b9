return tool {
  "Ask for a name, and greet it in a task.",
  task = "required",
  prepare = function(_, call) return try(call:elicit("user_name", "What is your name?", { name = t.string })) end,
  function(user, call)
    call:status("greeting " .. user.name)
    return "Hello, " .. user.name .. "!"
  end,
}
