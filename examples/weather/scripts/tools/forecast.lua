return tool {
  "The forecast for a city.",
  input = { city = t.string { "Its name", min = 1, max = 80 }, days = t.integer { default = 1, min = 1, max = 7 } },
  read_only = true, open_world = true,
  function(args)
    local res = try(http.get("http://127.0.0.1:7380/forecast", { query = args, timeout = 5 * seconds }))
    if res.status == 404 then return nil, "no weather is known for " .. args.city end
    if res.status ~= 200 then return nil, "the weather service answers " .. res.status end
    local days = {}
    for i, day in ipairs(try(res:json()).days) do days[i] = ("%s: %s, %d to %d degrees"):format(day.name, day.sky, day.low, day.high) end
    return table.concat(days, "\n")
  end,
}
