return tool {
  "Has an argument that is mirrored in a header.",
  input = { region = t.string { "Where", header = "Region" } },
  function(args) return "Region: " .. args.region end,
}
