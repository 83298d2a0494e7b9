--- Logs three times.
---@param call moonpool.Call
return function(call)
  for i = 1, 3 do
    call:log("info", "Message " .. i)
    sleep(0.05)
  end
  return "Messages logged."
end
