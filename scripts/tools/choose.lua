return tool {
  "Choose at random among options, without putting any back.",
  input = {
    options = t.list(t.string, { "What to choose among", min = 1, max = 1000 }),
    count = t.integer { "How many", default = 1, min = 1 },
  },
  open_world = false,
  function(args)
    local left, chosen = args.options, {}
    if args.count > #left then return nil, "there are only " .. #left .. " options" end
    for i = 1, args.count do chosen[i] = table.remove(left, math.random(#left)) end
    return table.concat(chosen, "\n")
  end,
}
