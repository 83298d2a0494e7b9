return tool {
  "Count the client's roots.",
  function(_, call)
    local roots = try(call:roots "client_roots")
    return "There are " .. #roots .. " roots"
  end,
}
