--- Lets the client's connection go in the middle of the call; the result comes when the client has come back.
---@param call moonpool.Call
return function(call)
  call:detach(0.5)
  sleep(0.1)
  return "You came back."
end
