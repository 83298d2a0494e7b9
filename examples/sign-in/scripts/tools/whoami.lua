return tool { "Says who calls, and what this person may do.", function(_, call)
  return call.principal.id .. " may " .. table.concat(call.principal.scopes, ", ")
end }
