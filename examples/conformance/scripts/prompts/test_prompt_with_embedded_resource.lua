return prompt {
  "Brings a resource along.",
  args = { resourceUri = t.string "Whose contents to bring" },
  function(args)
    return {
      user(embed(args.resourceUri, "Embedded resource content for testing.", "text/plain")),
      user "Please process the embedded resource above.",
    }
  end,
}
