--- Reports progress three times.
---@param call moonpool.Call
return function(call)
  for _, done in ipairs { 0, 50, 100 } do
    call:progress(done, 100)
    sleep(0.05)
  end
  return "Progress reported."
end
