return tool {
  "Says who asks, and what that one may do.", read_only = true,
  function(_, call)
    local me = call.principal
    return me.id .. " may " .. table.concat(me.scopes, ", ")
  end,
}
