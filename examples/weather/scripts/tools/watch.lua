return tool {
  "Reports observations from a city as they are made, up to so many.",
  input = { city = t.string "Its name", count = t.integer { default = 3, min = 1, max = 20 } },
  timeout = 5 * minutes, read_only = true, open_world = true,
  function(args, call)
    local stream <close> = try(http.stream("http://127.0.0.1:7380/observations", { query = { city = args.city }, idle = 60 * seconds }))
    if stream.status ~= 200 then return nil, "the weather service answers " .. stream.status end
    local seen = {}
    for event in stream:events() do
      seen[#seen + 1] = event.data
      call:progress(#seen, args.count, event.data)
      if #seen == args.count then break end
    end
    return table.concat(seen, "\n")
  end,
}
