return tool {
  "Shows the caller's id and scopes.", read_only = true,
  function(_, call)
    local me = call.principal
    return me.id .. " may " .. table.concat(me.scopes, ", ")
  end,
}
