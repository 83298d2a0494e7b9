return tool {
  "Count a visit. The count is that of all gateways.",
  input = { page = t.string { max = 100 } },
  function(args) return ("visit %d of %s"):format(try(store.incr("visits:" .. args.page)), args.page) end,
}
