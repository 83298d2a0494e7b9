return tool {
  "Ask two things at once, and wait for both.",
  task = "optional",
  function(_, call)
    local said, whys = call:ask {
      first = ask.elicit("What is the first name?", { name = t.string }),
      second = ask.elicit("What is the second name?", { name = t.string }),
    }
    return try(said.first, whys.first).name .. " and " .. try(said.second, whys.second).name
  end,
}
