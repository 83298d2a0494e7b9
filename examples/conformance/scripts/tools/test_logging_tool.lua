--- Logs once, for clients that asked for it.
---@param call moonpool.Call
return function(call)
  call:log("info", "A message")
  return "Logged if you wanted it."
end
