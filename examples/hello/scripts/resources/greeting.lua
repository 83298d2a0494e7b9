local greetings = { english = "Hello", french = "Bonjour", german = "Guten Tag", spanish = "Hola" }

return resource {
  "How to greet in a language.",
  uri = "greetings://{language}", mime = "text/plain", ttl = 1 * hours, public = true,
  complete = { language = { "english", "french", "german", "spanish" } },
  function(vars) return greetings[vars.language] end,   -- nil means "not found"
}
