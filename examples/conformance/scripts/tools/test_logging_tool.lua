--- Sends one log message, if the client asked for log messages.
---@param call moonpool.Call
return function(call)
  call:log("info", "A message")
  return "Logged if you wanted it."
end
