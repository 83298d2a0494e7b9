-- The file tools/text/count.lua defines the tool text_count.
return tool {
  "Count the characters, words and lines of a text.",
  input = { text = t.string "Any text" },
  output = { characters = t.integer, words = t.integer, lines = t.integer },
  read_only = true, open_world = false,
  function(args)
    local _, words = args.text:gsub("%S+", "")
    local _, ends = args.text:gsub("\n", "")
    local unended = args.text ~= "" and args.text:sub(-1) ~= "\n"
    return { characters = utf8.len(args.text), words = words, lines = ends + (unended and 1 or 0) }
  end,
}
