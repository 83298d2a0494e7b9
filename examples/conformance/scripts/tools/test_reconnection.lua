--- Closes the client's connection during the call; the result is sent after the client has reconnected.
---@param call moonpool.Call
return function(call)
  call:detach(0.5)
  sleep(0.1)
  return "You came back."
end
