--- Change the list of tools, so that subscribers are notified.
return function()
  local switch = enabled("tool", "test_extra_tool") and disable or enable
  switch("tool", "test_extra_tool")
  return "The tools have changed."
end
