return tool {
  "Compute for a while: as a task for clients that know what that is, else while they wait.",
  input = { seconds = t.number { "How long", min = 0, max = 3600 }, label = t.string { "What to call it", optional = true } },
  task = "optional",
  function(args, call)
    call:status("computing " .. (args.label or "something"))
    sleep(args.seconds)
    return "Computed " .. (args.label or "something") .. " in " .. args.seconds .. " s"
  end,
}
