return tool {
  "Ask, and ask again.",
  function(_, call)
    local first = try(call:elicit("step1", "What is your name?", { name = t.string }))
    local second = try(call:elicit("step2", "And your favourite colour, " .. first.name .. "?", { color = t.string }))
    return first.name .. " likes " .. second.color
  end,
}
