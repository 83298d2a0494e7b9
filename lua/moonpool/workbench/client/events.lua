--- The event streams of the admin listener, whose events are one line of data each.

--- A function that takes the bytes of a stream as they come, and calls `on_data` with the data of each event.
return function(on_data)
  local rest = ""
  return function(bytes)
    rest = rest .. bytes
    local from = 1
    while true do
      local at = rest:find("\n\n", from, true)
      if not at then break end
      local data = rest:sub(from, at - 1):match "^data: (.*)$"
      if data then on_data(data) end
      from = at + 2
    end
    rest = rest:sub(from)
  end
end
