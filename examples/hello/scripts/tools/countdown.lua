-- Other calls run while this tool waits. It reports its progress, and is cancelled at once when the client disconnects.
return tool {
  "Count down from a number, one second at a time.",
  input = { from = t.integer { "Where to begin", default = 3, min = 1, max = 30 } },
  timeout = 45 * seconds,
  function(args, call)
    local _ <close> = closing(function() log.debug("countdown over", { from = args.from }) end)
    for done = 1, args.from do
      call:progress(done, args.from, (args.from - done + 1) .. "...")
      sleep(1 * seconds)
    end
    return "Lift-off!"
  end,
}
